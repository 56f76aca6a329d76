// The draft under the latest tasks, on simulated engines: who would go elsewhere, and what that comes to.
import { html, useSignal } from "../vendor/preact.js";
import { useAction } from "../shared/action.js";
import { admin } from "../shared/api.js";
import { count, duration, money } from "../shared/format.js";
import { draft, isValid } from "./store.js";

const TIMEOUT_MS = 70_000; // a back-test is given up by the gateway after a minute
const LAST = [["15 minutes", 900], ["hour", 3_600], ["day", 86_400]];
const share = (value) => `${count(100 * value)} %`;
const FIGURES = [
  ["ttft_ms_p50", "First word (TTFT), p50", duration],
  ["ttft_ms_p95", "First word (TTFT), p95", duration],
  ["tpot_ms_p50", "Each token (TPOT), p50", duration],
  ["latency_ms_p50", "Whole answer, p50", duration],
  ["latency_ms_p95", "Whole answer, p95", duration],
  ["refused", "Refused", share],
  ["slo_met", "SLO met", share],
  ["money_usd", "Money", (value) => money(value, "USD")],
];

export function Backtest() {
  const lastS = useSignal(LAST[0][1]);
  const found = useSignal(null);
  const { run, isBusy, told } = useAction();
  const ask = async () => {
    const document = draft.value;
    const question = { last_s: lastS.value, policies: { draft: document } };
    found.value = { document, report: await admin("POST", "backtest", question, TIMEOUT_MS) };
  };
  return html`
    <p class="quiet">
      Runs the latest tasks again under the draft, on simulated engines, with pools and queues. It takes seconds, at most a
      minute, and changes nothing.
    </p>
    <div class="row wrap">
      <label>
        Tasks of the last
        <select value=${lastS.value} onChange=${(event) => (lastS.value = Number(event.target.value))}>
          ${LAST.map(([title, seconds]) => html`<option value=${seconds}>${title}</option>`)}
        </select>
      </label>
      <button disabled=${isBusy || !isValid.value} onClick=${() => run(ask)}>${isBusy ? "Running …" : "Run the back-test"}</button>
    </div>
    ${told} ${found.value && html`<${Report} ...${found.value} />`}
  `;
}

function Report({ document, report }) {
  const [tested] = report.policies;
  const isOld = document !== draft.value;
  return html`
    ${isOld && html`<p class="notice">The draft has changed since this was run.</p>`}
    <p role="status">
      <strong>${count(tested.num_moved)} of ${count(report.num_tasks)}</strong> tasks would go another way.
      ${tested.worsens_slo && html` <span class="tag bad">meets the SLO less often</span>`}
    </p>
    <${Moved} moved=${tested.moved} />
    <${Differences} tested=${tested} />
    ${tested.untestable.map(({ rule, why }) => html`<p class="quiet">Rule ${rule} cannot be tested: ${why}.</p>`)}
    <p class="quiet">
      Now and draft are both simulated. A difference has a 90 % interval; it counts as seen if that leaves 0 out. The replay
      took the way that the log has for ${share(report.replay.routed_same)} of the tasks.
    </p>
    ${report.notes.map((note) => html`<p class="quiet">${note}</p>`)}
  `;
}

function Moved({ moved }) {
  if (moved.length === 0) return null;
  return html`
    <table>
      <thead><tr><th class="number">Tasks</th><th>Now</th><th>By the draft</th></tr></thead>
      <tbody>
        ${moved.map(
          (each) => html`
            <tr>
              <td class="number">${count(each.num_tasks)}</td>
              <td><span class=${`tag ${each.before}`}>${each.before}</span></td>
              <td><span class=${`tag ${each.after}`}>${each.after}</span> by ${each.rule}</td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  `;
}

function Differences({ tested }) {
  const differences = new Map(tested.differences.map((each) => [each.figure, each]));
  const shown = FIGURES.filter(([figure]) => tested.before[figure] != null && tested.summary[figure] != null);
  const named = shown.filter(([figure]) => figure !== "money_usd" || tested.before[figure] || tested.summary[figure]);
  return html`
    <div class="scroll" tabindex="0" role="group" aria-label="Differences">
      <table>
        <thead><tr><th>Figure</th><th class="number">Now</th><th class="number">Draft</th><th>Difference</th></tr></thead>
        <tbody>
          ${named.map(
            ([figure, title, text]) => html`
              <tr>
                <td>${title}</td>
                <td class="number">${text(tested.before[figure])}</td>
                <td class="number">${text(tested.summary[figure])}</td>
                <td>${difference(differences.get(figure), text)}</td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    </div>
  `;
}

function difference(found, text) {
  if (!found?.seen) return html`<span class="quiet">none seen</span>`;
  const signed = (value) => (value < 0 ? "−" : "+") + text(Math.abs(value));
  return `${signed(found.after - found.before)} (${signed(found.low)} to ${signed(found.high)})`;
}
