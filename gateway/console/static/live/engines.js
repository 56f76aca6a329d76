// Each engine: how full its batch and its KV cache are, and how fast it generates.
import { html } from "../vendor/preact.js";
import { Bar } from "../shared/bar.js";
import { count } from "../shared/format.js";
import { backends, points } from "./feed.js";

export function Engines() {
  const latest = points.value.at(-1)?.tokens_per_s ?? {};
  return html`
    <section class="card" aria-labelledby="engines">
      <header><h2 id="engines">Engines</h2></header>
      ${backends.value.map((each) => html`<${Engine} key=${each.name} backend=${each} rate=${latest[each.name] ?? 0} />`)}
    </section>
  `;
}

function Engine({ backend, rate }) {
  return html`
    <article class="engine" aria-label=${backend.name}>
      <p class="line">
        <span class=${`dot ${backend.healthy ? "good" : "bad"}`}></span>
        <strong>${backend.name}</strong>
        <span class=${`tag ${backend.group}`}>${backend.group}</span>
        <span class="quiet">${backend.model}${backend.simulated ? ", simulated" : ""}</span>
        ${backend.drained && html`<span class="tag">drained</span>`}
        ${!backend.healthy && html`<span class="tag bad">does not answer</span>`}
        <span class="grow"></span>
        <span>${count(rate)} tokens/s</span>
      </p>
      <${Bar} name="Batch" value=${backend.running} max=${backend.max_num_seqs || null} note=${backend.waiting ? `${backend.waiting} wait` : ""} />
      <${Bar} name="KV cache" value=${backend.kv_used_tokens} max=${backend.kv_capacity_tokens || null} note="tokens" />
    </article>
  `;
}
