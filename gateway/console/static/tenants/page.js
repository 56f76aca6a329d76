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

const MAX_LISTED = 1_000; // as the admin API lists
const MAX_SHOWN = 20; // at once, so that whoever goes by keyboard gets past them
const PAUSE_MS = 250; // without a key press

export function Page() {
  if (!adminKey.value) return html`<h1>Tenants</h1><${NoKey} kind="admin" />`;
  return html`<h1 class="hidden">Tenants</h1><${Loaded} key=${adminKey.value} />`;
}

function Loaded() {
  const part = useSignal(""); // of the ids that are listed
  const round = useSignal(0); // of the field for it, which begins anew when something else sets it
  const { value, error, again } = useLoaded(async () => {
    const query = new URLSearchParams(part.value && { contains: part.value });
    const [tenants, tiers] = await Promise.all([admin("GET", `tenants?${query}`), admin("GET", "tiers")]);
    return { tenants, tiers };
  }, [part.value]);
  const chosen = useSignal(null);
  if (!value || !me.value) return error ? html`<${Fault} error=${error} again=${again} />` : html`<${Loading} what="tenants" />`;
  const canWrite = !me.value.read_only;
  const tenant = value.tenants.find(({ id }) => id === chosen.value) ?? value.tenants[0];
  const made = (id) => {
    chosen.value = id;
    if (part.value || value.tenants.length >= MAX_LISTED) {
      part.value = id; // else it might not be among them
      round.value++;
    }
    again();
  };
  return html`
    <div class="tenants">
      <section class="card" aria-labelledby="tenants">
        <header><h2 id="tenants">Tenants</h2></header>
        <${Choice} tenants=${value.tenants} chosen=${tenant} part=${part} round=${round.value} choose=${(id) => (chosen.value = id)} />
        ${error && html`<p class="fault" role="alert">${error.message}</p>`}
        ${canWrite && html`<${NewTenant} tiers=${value.tiers} made=${made} />`}
      </section>
      ${tenant && html`<${Tenant} key=${tenant.id} tenant=${tenant} tiers=${value.tiers} canWrite=${canWrite} changed=${again} />`}
    </div>
    <${Audit} tenants=${value.tenants} />
  `;
}

/** The tenants to choose from; more than a glance takes are found by a part of their ids. */
function Choice({ tenants, chosen, part, round, choose }) {
  const isMany = tenants.length > MAX_SHOWN || part.value;
  const number = tenants.length >= MAX_LISTED ? `${MAX_LISTED} or more` : tenants.length;
  const find = (event) => {
    const { value } = event.target;
    setTimeout(() => value === event.target.value && (part.value = value.trim()), PAUSE_MS);
  };
  return html`
    ${isMany && html`<label class="field">Find <input type="search" key=${round} defaultValue=${part.value} onInput=${find} autocomplete="off" /></label>`}
    <ul class="list">
      ${tenants.slice(0, MAX_SHOWN).map(
        (each) => html`
          <li key=${each.id}>
            <button class="plain choice" aria-pressed=${each === chosen} onClick=${() => choose(each.id)}>
              <strong>${each.id}</strong>
              <span class="quiet">${each.tier}, ${each.active_keys} keys${each.configured ? ", configured" : ""}</span>
            </button>
          </li>
        `,
      )}
    </ul>
    <p class="quiet" role="status">
      ${tenants.length > MAX_SHOWN && `The first ${MAX_SHOWN} of ${number}; type a part of another's id.`}
      ${tenants.length === 0 && (part.value ? "No tenant's id has this in it." : "There is none yet.")}
    </p>
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
