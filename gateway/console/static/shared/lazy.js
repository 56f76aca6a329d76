// Loads a page's module when it is first shown, and says so if that fails.
import { html, useEffect, useSignal } from "../vendor/preact.js";
import { Fault, Loading } from "./states.js";

export function Lazy({ load, title }) {
  const loaded = useSignal(null);
  const fault = useSignal(null);
  useEffect(() => {
    load().then(
      (module) => (loaded.value = module.Page),
      () => (fault.value = new Error("This page could not be loaded. Is the gateway there?")),
    );
  }, []);
  if (fault.value) return html`<${Fault} error=${fault.value} again=${() => location.reload()} />`;
  const Page = loaded.value;
  return Page ? html`<${Page} />` : html`<${Loading} what=${title} />`;
}
