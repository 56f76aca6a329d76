// The draft over what was recorded: which of the latest tasks it would send elsewhere.
import { html, useSignal } from "../vendor/preact.js";
import { useAction } from "../shared/action.js";
import { admin } from "../shared/api.js";
import { clock } from "../shared/format.js";
import { draft, isValid } from "./store.js";

const MAX_RECORDS = 100;
const AT_ONCE = 4;
const CANNOT_BE_ASKED = [400, 404];

export function DryRun() {
  const found = useSignal(null);
  const { run, isBusy, told } = useAction();
  const ask = async () => {
    const document = draft.value;
    found.value = { document, ...(await decideAgain(document)) };
  };
  return html`
    <p class="quiet">
      Asks of the latest recorded tasks where the draft would send them now. Only prompts that a policy records
      (<code>record_text = true</code>) can be asked again; a shadow policy compares all tasks instead.
    </p>
    <button disabled=${isBusy || !isValid.value} onClick=${() => run(ask)}>
      ${isBusy ? "Running …" : "Run it"}
    </button>
    ${told} ${found.value && html`<${Found} found=${found.value} />`}
  `;
}

async function decideAgain(document) {
  const records = await admin("GET", `decisions?limit=${MAX_RECORDS}`);
  const asked = records.filter((record) => record.text && record.route);
  const rows = [];
  for (let start = 0; start < asked.length; start += AT_ONCE) {
    rows.push(...(await Promise.all(asked.slice(start, start + AT_ONCE).map((record) => decide(record, document)))));
  }
  return { numRecords: records.length, rows };
}

/** One that cannot be asked again, as of a tenant who is gone, keeps no other from being asked. */
async function decide(record, document) {
  const question = { prompt: record.text, tenant: record.tenant, model: record.model, at: record.at, document, name: "console" };
  try {
    const { routes } = await admin("POST", "explain", question);
    return { record, route: routes[0]?.route ?? "refused", rule: routes[0]?.rule };
  } catch (error) {
    if (!CANNOT_BE_ASKED.includes(error.status)) throw error;
    return { record, error };
  }
}

function Found({ found }) {
  const asked = found.rows.filter(({ error }) => !error);
  const failed = found.rows.filter(({ error }) => error);
  const moved = asked.filter(({ record, route }) => route !== record.route);
  if (found.rows.length === 0) return html`<p>None of the latest ${found.numRecords} tasks has its prompt recorded.</p>`;
  return html`
    ${found.document !== draft.value && html`<p class="notice">The draft has changed since this was run.</p>`}
    <p role="status"><strong>${moved.length} of ${asked.length}</strong> recorded prompts would go elsewhere.</p>
    ${failed.length > 0 && html`<p class="fault">${failed.length} could not be asked again: ${failed[0].error.message}</p>`}
    <table>
      <thead><tr><th>Time</th><th>Tenant</th><th>Went</th><th>Would go</th></tr></thead>
      <tbody>
        ${moved.map(
          ({ record, route, rule }) => html`
            <tr title=${record.text.slice(0, 200)}>
              <td>${clock(record.at)}</td><td>${record.tenant}</td>
              <td><span class=${`tag ${record.route}`}>${record.route}</span></td>
              <td><span class=${`tag ${route}`}>${route}</span> ${rule}</td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  `;
}
