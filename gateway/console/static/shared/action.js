// Something a button does at the gateway: its progress, and what went wrong.
import { html, useSignal } from "../vendor/preact.js";

/** Returns `run(act)`, which never rejects, and what to show beside the button. */
export function useAction() {
  const state = useSignal({ isBusy: false, error: null, done: "" });
  const run = async (act, done = "") => {
    state.value = { isBusy: true, error: null, done: "" };
    try {
      await act();
      state.value = { isBusy: false, error: null, done };
    } catch (error) {
      state.value = { isBusy: false, error, done: "" };
    }
  };
  const { isBusy, error, done } = state.value;
  const told = html`
    ${error && html`<p class="notice bad" role="alert">${error.message}</p>`}
    ${done && html`<p class="notice" role="status">${done}</p>`}
  `;
  return { run, isBusy, told };
}
