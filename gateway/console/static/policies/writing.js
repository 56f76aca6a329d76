// The editor with the faults at their lines, and what may be done with the draft.
import { batch, html, useSignal } from "../vendor/preact.js";
import { useAction } from "../shared/action.js";
import { admin } from "../shared/api.js";
import { Editor } from "./code.js";
import { activate, checked, draft, isChecked, isValid, load, mayReplace, storeDraft, validDraft } from "./store.js";

export function Writing({ canWrite }) {
  const comment = useSignal("");
  const { run, isBusy, told } = useAction();

  const check = async (text) => {
    const asked = admin("POST", "policies/check", { document: text, name: "console" });
    const verdict = await asked.catch((error) => ({ valid: false, problems: [{ message: error.message }], warnings: [] }));
    if (text !== draft.value) return []; // it was typed on meanwhile, and is checked again
    const { valid, problems, warnings } = verdict;
    batch(() => {
      checked.value = { text, ...verdict };
      if (valid) validDraft.value = text;
    });
    return [
      ...problems.map((each) => ({ ...each, severity: "error" })),
      ...warnings.map((each) => ({ ...each, severity: "warning" })),
    ];
  };
  const store = async (andActivate) => {
    const version = await storeDraft(comment.value);
    if (!andActivate) return load();
    try {
      await activate(version, comment.value);
    } catch (error) {
      error.message += ` The draft is stored as v${version}; Reload shows what is in force.`;
      throw error;
    }
  };

  return html`
    <section class="card" aria-labelledby="draft">
      <header class="row"><h2 id="draft">Draft</h2><span class="grow"></span><${Verdict} /></header>
      <${Editor} label="Policy document" text=${draft} isReadOnly=${!canWrite} check=${check} />
      ${checked.value && html`<${Faults} verdict=${checked.value} />`}
      ${canWrite &&
      html`
        <div class="row wrap actions">
          <input aria-label="Comment" placeholder="Why (for the audit)" value=${comment.value} onInput=${(event) => (comment.value = event.target.value)} maxlength="500" />
          <button disabled=${isBusy || !isValid.value} onClick=${() => run(() => store(false), "Stored; nothing has changed yet.")}>Store</button>
          <button class="primary" disabled=${isBusy || !isValid.value} onClick=${() => mayReplace("the draft") && run(() => store(true), "In force.")}>Store and activate</button>
        </div>
      `}
      ${told}
    </section>
  `;
}

function Verdict() {
  if (!isChecked.value) return html`<span class="tag">checking</span>`;
  if (!isValid.value) return html`<span class="tag bad">${checked.value.problems.length} wrong</span>`;
  return html`<span class="tag good">valid</span>`;
}

const Faults = ({ verdict }) => html`
  <ul class="faults" aria-live="polite">
    ${verdict.problems.map((each) => html`<li class="fault">${where(each)}${each.message}</li>`)}
    ${verdict.warnings.map((each) => html`<li class="quiet">${where(each)}${each.message}</li>`)}
  </ul>
`;

const where = ({ line, column }) => (line ? `Line ${line}, column ${column}: ` : "");
