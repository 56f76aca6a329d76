// Who changed keys, tenants and tiers, when.
import { html } from "../vendor/preact.js";
import { admin } from "../shared/api.js";
import { date } from "../shared/format.js";
import { useLoaded } from "../shared/loaded.js";

/** `tenants` are loaded anew after each change of this page, and the audit with them. */
export function Audit({ tenants }) {
  const { value, error, again } = useLoaded(() => admin("GET", "audit?trail=tenants&limit=30"), [tenants]);
  return html`
    <section class="card" aria-labelledby="audit">
      <header class="row"><h2 id="audit">Audit</h2><span class="grow"></span><button class="plain small" onClick=${again}>Reload</button></header>
      ${error && html`<p class="fault">${error.message}</p>`}
      ${value?.length === 0 && html`<p class="quiet">Nobody has changed a key, a tenant or a tier yet.</p>`}
      <ul class="list">
        ${value?.map((entry) => html`<li><span class="quiet">${date(entry.at)}</span> <strong>${entry.author}</strong> ${entry.action} ${entry.subject}</li>`)}
      </ul>
    </section>
  `;
}
