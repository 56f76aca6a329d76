// Asks for a key; it stays in the tab's memory, and is gone with the tab.
import { html, signal, useEffect, useRef } from "../vendor/preact.js";
import { adminKey, tenantKey } from "./site.js";

const KINDS = {
  tenant: { key: tenantKey, title: "API key", words: "Play asks the gateway as a tenant does, with one of its keys." },
  admin: { key: adminKey, title: "Admin key", words: "Live, Policies and Tenants use the admin API. A read-only key sees everything and changes nothing." },
};

/** The kind of key to ask for: "tenant", "admin", or null. */
export const wantsKey = signal(null);

export function KeyDialog() {
  const dialog = useRef(null);
  const kind = KINDS[wantsKey.value];
  useEffect(() => {
    if (kind && !dialog.current.open) dialog.current.showModal();
  }, [kind]);
  if (!kind) return null;

  const take = (event) => {
    event.preventDefault();
    kind.key.value = new FormData(event.target).get("key").trim();
    dialog.current.close();
  };
  return html`
    <dialog ref=${dialog} class="dialog" aria-labelledby="key-title" onClose=${() => (wantsKey.value = null)}>
      <form onSubmit=${take}>
        <h2 id="key-title">${kind.title}</h2>
        <p class="quiet">${kind.words} It stays in this tab's memory, and is gone when you close it.</p>
        <label>Key <input name="key" type="password" autocomplete="off" value=${kind.key.value} required /></label>
        <div class="row end">
          <button type="button" class="plain" onClick=${() => dialog.current.close()}>Cancel</button>
          <button class="primary">Use this key</button>
        </div>
      </form>
    </dialog>
  `;
}
