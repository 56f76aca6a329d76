// The rate-limit pools of the tenants whose tasks came last, as they drain and fill.
import { html } from "../vendor/preact.js";
import { Bar } from "../shared/bar.js";
import { gateway, pools } from "./feed.js";

const NONE = "The tenants of the latest tasks have theirs here.";
const AWAY = "Redis does not answer, and it alone knows what is left.";

export const Pools = () => html`
  <section class="card" aria-labelledby="pools">
    <header><h2 id="pools">Pools</h2></header>
    ${pools.value.length === 0 && html`<p class="quiet">${gateway.value.pools === "redis" ? NONE : AWAY}</p>`}
    ${pools.value.map(
      ({ tenant, pools: own, fault }) => html`
        <article key=${tenant} aria-label=${`Pools of ${tenant}`}>
          <p><strong>${tenant}</strong></p>
          ${fault && html`<p class="fault">${fault}</p>`}
          ${own.map((pool) => html`<${Bar} name=${`${pool.group} ${pool.unit}`} value=${pool.remaining} max=${pool.limit} note="left" />`)}
        </article>
      `,
    )}
  </section>
`;
