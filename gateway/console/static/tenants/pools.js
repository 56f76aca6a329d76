// What is left in a tenant's pools, now.
import { html } from "../vendor/preact.js";
import { admin } from "../shared/api.js";
import { useLoaded } from "../shared/loaded.js";
import { Bar } from "../shared/bar.js";

export function Pools({ tenant }) {
  const { value, error, again } = useLoaded(() => admin("GET", `pools/${encodeURIComponent(tenant.id)}`), [tenant]);
  return html`
    <section class="card" aria-labelledby="left">
      <header class="row"><h2 id="left">Left in its pools</h2><span class="grow"></span><button class="plain small" onClick=${again}>Reload</button></header>
      ${error && html`<p class="fault">${error.message}</p>`}
      ${value?.map((pool) => html`<${Bar} name=${`${pool.group} ${pool.unit}${pool.key ? ` of ${pool.key}` : ""}`} value=${pool.remaining} max=${pool.limit} note="left" />`)}
      ${value?.length === 0 && html`<p class="quiet">It has access to no engine.</p>`}
    </section>
  `;
}
