// What a tenant used: by day and model, or by key, as a plot, a table, and CSV.
import { html, useSignal } from "../vendor/preact.js";
import { admin } from "../shared/api.js";
import { count, money } from "../shared/format.js";
import { useLoaded } from "../shared/loaded.js";
import { Plot } from "../shared/plot.js";

const DAYS = [7, 30];
const BY = ["model", "key", "route"];
const DAY_S = 86_400;
const COLOURS = ["fast", "deep", "parallel", "none", "other"]; // the fifth stands for all further ones
const COUNTED = ["tasks", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cost_units", "cost_usd"];
const NOTHING = Object.fromEntries(COUNTED.map((name) => [name, 0])); // a zero is left out of the answer

const dayOf = (unixS) => new Date(unixS * 1000).toISOString().slice(0, 10);

export function Usage({ tenant }) {
  const numDays = useSignal(DAYS[0]);
  const by = useSignal(BY[0]);
  const { value, error } = useLoaded(() => ask(tenant.id, numDays.value, by.value), [tenant.id, numDays.value, by.value]);
  const rows = value?.rows ?? [];
  return html`
    <section class="card" aria-labelledby="usage">
      <header class="row wrap">
        <h2 id="usage">Usage</h2>
        <label>by <select onChange=${(event) => (by.value = event.target.value)}>${BY.map((name) => html`<option>${name}</option>`)}</select></label>
        <label>over <select onChange=${(event) => (numDays.value = Number(event.target.value))}>${DAYS.map((days) => html`<option value=${days}>${days} days</option>`)}</select></label>
        <span class="grow"></span>
        ${rows.length > 0 && html`<button class="small" onClick=${() => saveCsv(tenant.id, value.by, rows)}>CSV</button>`}
      </header>
      ${error && html`<p class="fault">${error.message}</p>`}
      ${value && rows.length === 0 && html`<p class="quiet">It has used nothing in these days.</p>`}
      ${rows.length > 0 && html`<${Days} rows=${rows} by=${value.by[1]} numDays=${value.numDays} /><${Table} rows=${rows} by=${value.by[1]} />`}
    </section>
  `;
}

async function ask(tenant, numDays, by) {
  const nowS = Date.now() / 1000;
  const query = new URLSearchParams({ tenant, first_day: dayOf(nowS - (numDays - 1) * DAY_S), last_day: dayOf(nowS) });
  query.append("by", "day");
  query.append("by", by);
  const told = await admin("GET", `usage?${query}`);
  return { ...told, numDays, rows: told.rows.map((row) => ({ ...NOTHING, ...row })) };
}

function Days({ rows, by, numDays }) {
  const midnightS = Math.floor(Date.now() / 1000 / DAY_S) * DAY_S;
  const times = Array.from({ length: numDays }, (_, index) => midnightS - (numDays - 1 - index) * DAY_S);
  const names = [...new Set(rows.map((row) => row[by]))].slice(0, COLOURS.length);
  const series = names.map((name, index) => ({
    name: name || "none",
    kind: COLOURS[index],
    values: times.map((at) => tokensOf(rows.filter((row) => row[by] === name && row.day === dayOf(at)))),
  }));
  return html`<${Plot} title="Tokens" unit="per day" times=${times} series=${series} timeText=${(at) => dayOf(at).slice(5)} />`;
}

const tokensOf = (rows) => rows.reduce((sum, row) => sum + row.input_tokens + row.output_tokens, 0);

const Table = ({ rows, by }) => html`
  <div class="scroll" tabindex="0" role="group" aria-label="Usage by day">
    <table>
      <thead><tr><th>Day</th><th>${by}</th><th class="number">Tasks</th><th class="number">Input</th><th class="number">Cached</th><th class="number">Output</th><th class="number">USD</th></tr></thead>
      <tbody>
        ${rows.map(
          (row) => html`
            <tr>
              <td>${row.day}</td><td>${row[by]}</td><td class="number">${count(row.tasks)}</td>
              <td class="number">${count(row.input_tokens)}</td><td class="number">${count(row.cached_tokens)}</td><td class="number">${count(row.output_tokens)}</td>
              <td class="number">${row.cost_usd ? money(row.cost_usd, "USD") : "–"}</td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  </div>
`;

function saveCsv(tenant, by, rows) {
  const columns = [...by, ...COUNTED];
  const lines = [columns, ...rows.map((row) => columns.map((name) => row[name]))];
  const text = lines.map((line) => line.map(cell).join(",")).join("\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([`${text}\n`], { type: "text/csv" }));
  link.download = `usage-${tenant}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Quoted; a spreadsheet would take one that begins like a formula for one. */
function cell(value) {
  const text = String(value ?? "").replaceAll('"', '""');
  return `"${/^[=+\-@]/.test(text) ? "'" : ""}${text}"`;
}
