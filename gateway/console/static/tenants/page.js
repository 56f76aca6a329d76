// *Tenants*: who may use what, with which keys, and how much they have used.
import { html, useSignal } from "../vendor/preact.js";
import { admin } from "../shared/api.js";
import { useLoaded } from "../shared/loaded.js";
import { me } from "../shared/me.js";
import { adminKey } from "../shared/site.js";
import { Fault, Loading, NoKey } from "../shared/states.js";
import { Keys } from "./keys.js";
import { Limits } from "./limits.js";
import { NewTenant } from "./new_tenant.js";
import { Pools } from "./pools.js";
import { Audit } from "./audit.js";
import { Usage } from "./usage.js";

export function Page() {
  if (!adminKey.value) return html`<h1>Tenants</h1><${NoKey} kind="admin" />`;
  return html`<h1 class="hidden">Tenants</h1><${Loaded} key=${adminKey.value} />`;
}

function Loaded() {
  const { value, error, again } = useLoaded(async () => {
    const [tenants, tiers] = await Promise.all([admin("GET", "tenants"), admin("GET", "tiers")]);
    return { tenants, tiers };
  });
  const chosen = useSignal(null);
  if (!value || !me.value) return error ? html`<${Fault} error=${error} again=${again} />` : html`<${Loading} what="tenants" />`;
  const canWrite = !me.value.read_only;
  const tenant = value.tenants.find(({ id }) => id === chosen.value) ?? value.tenants[0];
  return html`
    <div class="tenants">
      <section class="card" aria-labelledby="tenants">
        <header><h2 id="tenants">Tenants</h2></header>
        <ul class="list">
          ${value.tenants.map(
            (each) => html`
              <li key=${each.id}>
                <button class="plain choice" aria-pressed=${each === tenant} onClick=${() => (chosen.value = each.id)}>
                  <strong>${each.id}</strong>
                  <span class="quiet">${each.tier}, ${each.active_keys} keys${each.configured ? ", configured" : ""}</span>
                </button>
              </li>
            `,
          )}
        </ul>
        ${canWrite && html`<${NewTenant} tiers=${value.tiers} made=${(id) => ((chosen.value = id), again())} />`}
      </section>
      ${tenant && html`<${Tenant} key=${tenant.id} tenant=${tenant} tiers=${value.tiers} canWrite=${canWrite} changed=${again} />`}
    </div>
    <${Audit} tenants=${value.tenants} />
  `;
}

const Tenant = ({ tenant, tiers, canWrite, changed }) => html`
  <div>
    <${Keys} tenant=${tenant} canWrite=${canWrite} changed=${changed} />
    <div class="grid">
      <${Limits} tenant=${tenant} tiers=${tiers} canWrite=${canWrite && !tenant.configured} changed=${changed} />
      <${Pools} tenant=${tenant} />
    </div>
    <${Usage} tenant=${tenant} />
  </div>
`;
