// A button that copies a text; where the browser lets the page copy nothing, as over plain HTTP, it says so.
import { html, useSignal } from "../vendor/preact.js";

const SHOWN_MS = 4_000;

/** `text()` returns what is to be copied. */
export function Copy({ text, title, kind, otherwise }) {
  const said = useSignal("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      said.value = "Copied";
    } catch {
      said.value = otherwise; // there is no clipboard here, or the person said no
    }
    setTimeout(() => (said.value = ""), SHOWN_MS);
  };
  return html`<button type="button" class=${kind} onClick=${copy}>${said.value || title}</button>`;
}
