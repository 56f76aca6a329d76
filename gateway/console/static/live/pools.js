// The rate-limit pools of the tenants whose tasks came last, as they drain and fill.
import { html } from "../vendor/preact.js";
import { Bar } from "../shared/bar.js";
import { pools } from "./feed.js";

export const Pools = () => html`
  <section class="card" aria-labelledby="pools">
    <header><h2 id="pools">Pools</h2></header>
    ${pools.value.length === 0 && html`<p class="quiet">The tenants of the latest tasks have theirs here.</p>`}
    ${pools.value.map(
      ({ tenant, pools: own }) => html`
        <article key=${tenant} aria-label=${`Pools of ${tenant}`}>
          <p><strong>${tenant}</strong></p>
          ${own.map((pool) => html`<${Bar} name=${`${pool.group} ${pool.unit}`} value=${pool.remaining} max=${pool.limit} note="left" />`)}
        </article>
      `,
    )}
  </section>
`;
