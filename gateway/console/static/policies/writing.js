// The editor with the faults at their lines, and what may be done with the draft.
import { html, useSignal } from "../vendor/preact.js";
import { useAction } from "../shared/action.js";
import { admin } from "../shared/api.js";
import { Editor } from "./code.js";
import { activate, draft, load, storeDraft, validDraft } from "./store.js";

export function Writing({ canWrite }) {
  const verdict = useSignal(null);
  const comment = useSignal("");
  const { run, isBusy, told } = useAction();

  const check = async (text) => {
    try {
      verdict.value = await admin("POST", "policies/check", { document: text, name: "console" });
    } catch (error) {
      verdict.value = { valid: false, problems: [{ message: error.message }], warnings: [] };
    }
    const { valid, problems, warnings } = verdict.value;
    if (valid) validDraft.value = text;
    return [
      ...problems.map((each) => ({ ...each, severity: "error" })),
      ...warnings.map((each) => ({ ...each, severity: "warning" })),
    ];
  };
  const store = async (andActivate) => {
    const version = await storeDraft(comment.value);
    if (andActivate) await activate(version, comment.value);
    else await load();
  };

  return html`
    <section class="card" aria-labelledby="draft">
      <header class="row"><h2 id="draft">Draft</h2><span class="grow"></span><${Verdict} verdict=${verdict.value} /></header>
      <${Editor} label="Policy document" text=${draft} isReadOnly=${!canWrite} check=${check} />
      ${verdict.value && html`<${Faults} verdict=${verdict.value} />`}
      ${canWrite &&
      html`
        <div class="row wrap actions">
          <input aria-label="Comment" placeholder="Why (for the audit)" value=${comment.value} onInput=${(event) => (comment.value = event.target.value)} maxlength="500" />
          <button disabled=${isBusy || !verdict.value?.valid} onClick=${() => run(() => store(false), "Stored; nothing has changed yet.")}>Store</button>
          <button class="primary" disabled=${isBusy || !verdict.value?.valid} onClick=${() => run(() => store(true), "In force.")}>Store and activate</button>
        </div>
      `}
      ${told}
    </section>
  `;
}

function Verdict({ verdict }) {
  if (!verdict) return html`<span class="tag">checking</span>`;
  if (!verdict.valid) return html`<span class="tag bad">${verdict.problems.length} wrong</span>`;
  return html`<span class="tag good">valid</span>`;
}

const Faults = ({ verdict }) => html`
  <ul class="faults" aria-live="polite">
    ${verdict.problems.map((each) => html`<li class="fault">${where(each)}${each.message}</li>`)}
    ${verdict.warnings.map((each) => html`<li class="quiet">${where(each)}${each.message}</li>`)}
  </ul>
`;

const where = ({ line, column }) => (line ? `Line ${line}, column ${column}: ` : "");
