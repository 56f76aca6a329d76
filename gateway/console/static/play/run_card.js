// One lane of the race: its figures, its answer, what else was said, and a line to steer it.
import { html, useEffect, useRef, useSignal } from "../vendor/preact.js";
import { count, duration, energy, money } from "../shared/format.js";
import { Markdown } from "../shared/markdown.js";
import { nowMs, parent } from "./race.js";
import { tokenRate, tokensOf } from "./run.js";

const PHASES = { waiting: "waits", running: "streams", done: "done", failed: "failed", stopped: "stopped" };

export function RunCard({ run, isFirst }) {
  const phase = run.phase.value;
  const answers = run.items.value.filter((item) => item.kind === "answer");
  return html`
    <article class="card run" aria-label=${run.lane.title}>
      <header class="row">
        <h2>${run.lane.title}</h2>
        <span class=${`tag phase-${phase}`}>${PHASES[phase]}</span>
        ${isFirst && html`<span class="tag good">first</span>`}
        <span class="grow"></span>
        ${!run.isOver && html`<button class="plain small" onClick=${() => run.stop()}>Stop</button>`}
        ${run.response &&
        html`<button class="plain small" onClick=${() => (parent.value = { response: run.response, title: run.lane.title })}>
          Go on from this
        </button>`}
      </header>
      <${Figures} run=${run} />
      <${Where} run=${run} />
      ${run.error.value && html`<p class="fault" role="alert">${run.error.value.message}</p>`}
      <${Commentary} items=${run.items.value.filter((item) => item.kind === "commentary")} />
      ${answers.length > 1 ? html`<${Variations} items=${answers} />` : answers.map((item) => html`<${Answer} key=${item.id} item=${item} follows=${!run.isOver} />`)}
      ${phase === "running" && html`<${Steer} run=${run} />`}
    </article>
  `;
}

function Figures({ run }) {
  const now = nowMs.value;
  const { tokens, isEstimate } = tokensOf(run);
  const rate = tokenRate(run, now);
  const about = isEstimate && tokens ? "≈ " : "";
  const figures = [
    ["First word", duration(run.firstMs.value)],
    ["Tokens/s", rate === null ? "–" : about + count(Math.round(rate))],
    ["Tokens", about + count(tokens)],
    ["Time", duration(run.elapsedMs(now))],
    ...spent(run.routing.value),
  ];
  return html`<dl class="figures">${figures.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** What the end tells where prices are configured, and the power of all engines that worked is known. */
function spent(routing) {
  const { cost, energy_joules: joules } = routing ?? {};
  return [...(cost ? [["Cost", money(cost.amount, cost.currency)]] : []), ...(joules == null ? [] : [["Energy", energy(joules)]])];
}

function Where({ run }) {
  const routing = run.routing.value;
  const billed = Object.entries(routing?.usage ?? {}).map(([name, usage]) => `${name} ${count(usage.total_tokens)}`);
  return html`
    <p class="where line quiet">
      ${routing && html`<span class=${`tag ${routing.route}`}>${routing.route}${routing.strategy ? ` · ${routing.strategy}` : ""}</span>`}
      <span>${routing?.why}</span>
      ${billed.length > 0 && html`<span>Charged tokens: ${billed.join(", ")}.</span>`}
      ${run.note.value && html`<strong>${run.note.value}</strong>`}
    </p>
  `;
}

/** `follows`: the end of a long listing stays in sight while it grows. */
function Answer({ item, follows = false }) {
  const place = useRef(null);
  useEffect(() => {
    const listing = follows && [...place.current.querySelectorAll("pre")].at(-1);
    if (listing) listing.scrollTop = listing.scrollHeight;
  }, [item.text, follows]);
  return html`
    <div ref=${place}>
      ${item.isCut && html`<p class="quiet">The beginning is no longer shown.</p>`}
      <${Markdown} text=${item.text} />
    </div>
  `;
}

function Commentary({ items }) {
  if (items.length === 0) return null;
  return html`
    <details class="commentary">
      <summary>Commentary and drafts (${items.length})</summary>
      ${items.map((item) => html`<${Answer} key=${item.id} item=${item} />`)}
    </details>
  `;
}

/** The answers of one request side by side, of which one is picked. */
function Variations({ items }) {
  const picked = useSignal(null);
  return html`
    <div class="variations">
      ${items.map(
        (item, index) => html`
          <section key=${item.id} class=${picked.value === item.id ? "variation picked" : "variation"} aria-label=${`Variation ${index + 1}`}>
            <header class="row">
              <h3>${index + 1}</h3>
              <span class="grow"></span>
              <button class="small" aria-pressed=${picked.value === item.id} onClick=${() => (picked.value = item.id)}>
                ${picked.value === item.id ? "Picked" : "Pick"}
              </button>
            </header>
            <${Answer} item=${item} />
          </section>
        `,
      )}
    </div>
  `;
}

function Steer({ run }) {
  const fault = useSignal("");
  const steer = async (event) => {
    event.preventDefault();
    const field = event.target.elements.words;
    const words = field.value.trim();
    if (!words) return;
    fault.value = "";
    try {
      await run.steer(words);
      field.value = "";
    } catch (error) {
      fault.value = error.message;
    }
  };
  return html`
    <form class="row steer" onSubmit=${steer}>
      <input name="words" aria-label=${`Steer ${run.lane.title}`} placeholder="Steer it while it streams …" autocomplete="off" />
      <button class="small">Steer</button>
    </form>
    ${fault.value && html`<p class="fault" role="alert">${fault.value}</p>`}
  `;
}
