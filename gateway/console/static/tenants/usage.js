// What a tenant's latest tasks used, by day and model, as far back as the decision log in memory goes.
import { html } from "../vendor/preact.js";
import { admin } from "../shared/api.js";
import { count } from "../shared/format.js";
import { useLoaded } from "../shared/loaded.js";

const MAX_RECORDS = 1_000;

export function Usage({ tenant }) {
  const { value, error } = useLoaded(
    () => admin("GET", `decisions?limit=${MAX_RECORDS}&tenant=${encodeURIComponent(tenant.id)}`),
    [tenant.id],
  );
  const rows = value ? rowsOf(value) : [];
  return html`
    <section class="card" aria-labelledby="usage">
      <header class="row wrap">
        <h2 id="usage">Usage of its latest tasks</h2>
        <span class="grow"></span>
        ${rows.length > 0 && html`<button class="small" onClick=${() => saveCsv(tenant.id, rows)}>CSV</button>`}
      </header>
      ${error && html`<p class="fault">${error.message}</p>`}
      ${value && rows.length === 0 && html`<p class="quiet">It has run no task since this gateway started.</p>`}
      ${rows.length > 0 && html`<${Table} rows=${rows} />`}
      <p class="quiet">The ledger has all of it: <code>lanewise usage export</code>.</p>
    </section>
  `;
}

/** One row for each day and model, the latest day first. */
function rowsOf(records) {
  const rows = new Map();
  for (const record of records) {
    const day = new Date(record.at * 1000).toISOString().slice(0, 10);
    for (const usage of record.usage) {
      const id = `${day} ${usage.model}`;
      const row = rows.get(id) ?? { day, model: usage.model, tasks: 0, input: 0, cached: 0, output: 0 };
      row.tasks += 1;
      row.input += usage.input_tokens;
      row.cached += usage.cached_tokens;
      row.output += usage.output_tokens;
      rows.set(id, row);
    }
  }
  return [...rows.values()];
}

const COLUMNS = ["day", "model", "tasks", "input", "cached", "output"];

function Table({ rows }) {
  const most = Math.max(...rows.map((row) => row.input + row.output), 1);
  return html`
    <div class="scroll" tabindex="0" role="group" aria-label="Usage by day and model">
      <table>
        <thead><tr><th>Day</th><th>Model</th><th class="number">Tasks</th><th class="number">Input</th><th class="number">Cached</th><th class="number">Output</th><th>Tokens</th></tr></thead>
        <tbody>
          ${rows.map(
            (row) => html`
              <tr>
                <td>${row.day}</td><td>${row.model}</td><td class="number">${count(row.tasks)}</td>
                <td class="number">${count(row.input)}</td><td class="number">${count(row.cached)}</td><td class="number">${count(row.output)}</td>
                <td><meter aria-label=${`Tokens of ${row.model}`} min="0" max=${most} value=${row.input + row.output}></meter></td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    </div>
  `;
}

function saveCsv(tenant, rows) {
  const lines = [COLUMNS, ...rows.map((row) => COLUMNS.map((name) => row[name]))];
  const text = lines.map((line) => line.map((cell) => `"${String(cell).replaceAll('"', '""')}"`).join(",")).join("\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([`${text}\n`], { type: "text/csv" }));
  link.download = `usage-${tenant}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
}
