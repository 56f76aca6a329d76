// Says of which draft something is told that only a valid one can tell: the one as it stands needs no word.
import { html } from "../vendor/preact.js";
import { isChecked, isValid, validDraft } from "./store.js";

export function OfValid() {
  if (!isChecked.value || isValid.value) return null;
  const words = validDraft.value === null ? "This needs a valid draft." : "This is of the draft as it last was valid.";
  return html`<p class="notice" role="status">${words}</p>`;
}
