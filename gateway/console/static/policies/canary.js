// Rules for a part of the conversations: the part as a slider, and how canary and control fare.
import { html } from "../vendor/preact.js";
import { admin } from "../shared/api.js";
import { duration } from "../shared/format.js";
import { useLoaded } from "../shared/loaded.js";
import { draft } from "./store.js";

/** The rules of a TOML document that have a `percent`, each with where its number stands. */
export function canaries(text) {
  const found = [];
  let rule = null;
  let at = 0; // of the line's first character
  for (const line of text.split("\n")) {
    if (line.startsWith("[")) rule = line.startsWith("[[rules]]") ? { name: "" } : null;
    const [, key, value] = /^\s*(name|percent)\s*=\s*"?([^"#]*[^"#\s])/.exec(line) ?? [];
    if (rule && key === "name") rule.name = value;
    if (rule && key === "percent") {
      const from = at + line.indexOf(value, line.indexOf("="));
      Object.assign(rule, { percent: Number(value), from, to: from + value.length });
      found.push(rule);
    }
    at += line.length + 1;
  }
  return found;
}

function setPercent({ from, to }, percent) {
  draft.value = draft.value.slice(0, from) + percent + draft.value.slice(to);
}

export function Canary() {
  const found = canaries(draft.value);
  const { value: records, error } = useLoaded(() => admin("GET", "decisions?limit=1000"));
  if (found.length === 0) {
    return html`<p class="quiet">No rule of the draft has a <code>percent</code>. Give one to a rule, and it takes that part of the conversations, always the same ones.</p>`;
  }
  return found.map((rule) => html`
    <section key=${rule.name} aria-label=${rule.name}>
      <label class="field">
        ${rule.name}: ${rule.percent} % of conversations
        <input type="range" min="0" max="100" value=${rule.percent} onInput=${(event) => setPercent(rule, event.target.value)} />
      </label>
      ${error && html`<p class="fault">${error.message}</p>`}
      ${records && html`<${Figures} name=${rule.name} records=${records} />`}
    </section>
  `);
}

function Figures({ name, records }) {
  const groups = [
    ["Canary", records.filter((each) => each.canary && each.rule === name)],
    ["Control", records.filter((each) => each.control)],
  ];
  return html`
    <table>
      <thead><tr><th>Latest tasks</th><th class="number">Tasks</th><th class="number">OK</th><th class="number">First word</th><th class="number">Time</th><th class="number">Charged</th></tr></thead>
      <tbody>
        ${groups.map(
          ([title, group]) => html`
            <tr>
              <td>${title}</td>
              <td class="number">${group.length}</td>
              <td class="number">${group.length ? `${Math.round((100 * group.filter((each) => each.outcome === "ok").length) / group.length)} %` : "–"}</td>
              <td class="number">${duration(median(group.map((each) => each.ttft_ms)))}</td>
              <td class="number">${duration(median(group.map((each) => each.duration_ms)))}</td>
              <td class="number">${median(group.map((each) => each.cost)) ?? "–"}</td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  `;
}

function median(values) {
  const known = values.filter((value) => value != null).sort((a, b) => a - b);
  return known.length ? known[Math.floor(known.length / 2)] : null;
}
