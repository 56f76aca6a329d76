// What the draft changes against what is in force: in its decisions, and in its text.
import { html } from "../vendor/preact.js";
import { admin } from "../shared/api.js";
import { useLoaded } from "../shared/loaded.js";
import { Difference } from "./code.js";
import { OfValid } from "./of_valid.js";
import { base, isChecked, isValid, validDraft } from "./store.js";

const MAX_SHOWN = 60;

export function Changes() {
  const { value, error } = useLoaded(
    async () => (validDraft.value === null ? null : admin("POST", "policies/diff", { document: validDraft.value, name: "console" })),
    [validDraft.value, base.value.version],
  );
  if (error) return html`<p class="fault">${error.message}</p>`;
  if (!value) return isChecked.value && !isValid.value ? html`<${OfValid} />` : html`<p class="quiet">Comparing …</p>`;
  return html`
    <${OfValid} />
    <p>Against ${value.old ? `v${value.old}` : "the configured policy"}: ${value.changes.length} differences.</p>
    ${base.value.version > 0 && html`<${Difference} label="Changes of the text" original=${base.value.document} text=${validDraft.value} />`}
    <div class="scroll" tabindex="0" role="group" aria-label="Differences">
      <table>
        <thead><tr><th>Where</th><th>Now</th><th>By the draft</th></tr></thead>
        <tbody>
          ${value.changes.slice(0, MAX_SHOWN).map(
            (each) => html`<tr><td class="mono">${each.path}</td><td>${shown(each.from)}</td><td>${shown(each.to)}</td></tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${value.changes.length > MAX_SHOWN && html`<p class="quiet">and ${value.changes.length - MAX_SHOWN} more</p>`}
  `;
}

const shown = (value) => (value === null || value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value));
