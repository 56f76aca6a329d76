// The decision feed. A row opens the whole story of its task.
import { html, signal } from "../vendor/preact.js";
import { clock, count, duration } from "../shared/format.js";
import { decisions } from "./feed.js";
import { Story } from "./story.js";

const MAX_ROWS = 40;
const opened = signal(null);

export function Decisions() {
  const shown = decisions.value.slice(0, MAX_ROWS);
  return html`
    <section class="card" aria-labelledby="decisions">
      <header><h2 id="decisions">Decisions</h2></header>
      ${shown.length === 0
        ? html`<p class="quiet">No task has ended yet. Start one on Play, and it shows here.</p>`
        : html`
            <div class="scroll" tabindex="0" role="group" aria-label="The latest decisions">
              <table>
                <thead>
                  <tr>
                    <th>Time</th><th>Tenant</th><th>Route</th><th>Why</th><th>Outcome</th>
                    <th class="number">First word</th><th class="number">Time</th><th class="number">Tokens</th>
                  </tr>
                </thead>
                <tbody>${shown.map((record) => html`<${Row} key=${record.id} record=${record} />`)}</tbody>
              </table>
            </div>
          `}
      <${Story} record=${opened.value} close=${() => (opened.value = null)} />
    </section>
  `;
}

const Row = ({ record }) => html`
  <tr class="pick">
    <td><button class="plain small" onClick=${() => (opened.value = record)}>${clock(record.at)}</button></td>
    <td>${record.tenant}</td>
    <td><span class=${`tag ${record.route ?? "bad"}`}>${record.route ?? "refused"}</span> ${record.strategy}</td>
    <td>${record.rule ? `rule ${record.rule}` : record.reason}</td>
    <td class=${record.outcome === "ok" ? "" : "fault"}>${record.outcome}${record.error ? `: ${record.error}` : ""}</td>
    <td class="number">${duration(record.ttft_ms)}</td>
    <td class="number">${duration(record.duration_ms)}</td>
    <td class="number">${count(record.output_tokens)}</td>
  </tr>
`;
