// *Play*: one prompt, several lanes, side by side.
import { html } from "../vendor/preact.js";
import { Copy } from "../shared/copy.js";
import { NoKey } from "../shared/states.js";
import { tenantKey } from "../shared/site.js";
import { LANES } from "./lanes.js";
import { Preview } from "./preview.js";
import { RunCard } from "./run_card.js";
import * as state from "./race.js";

export function Page() {
  if (!tenantKey.value) return html`<h1>Play</h1><${NoKey} kind="tenant" />`;
  const runs = state.runs.value;
  return html`
    <h1 class="hidden">Play</h1>
    <${Prompt} />
    ${runs.length === 0 ? html`<${Welcome} />` : html`<${Race} runs=${runs} />`}
  `;
}

function Prompt() {
  const submit = (event) => {
    event.preventDefault();
    state.race();
  };
  const onKey = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
  };
  return html`
    <form class="prompt card" onSubmit=${submit}>
      <${Parent} />
      <label class="hidden" for="prompt">Prompt</label>
      <textarea
        id="prompt"
        rows="3"
        placeholder="Ask anything. Ctrl+Enter races it."
        value=${state.prompt.value}
        onInput=${(event) => (state.prompt.value = event.target.value)}
        onKeyDown=${onKey}
      ></textarea>
      <${Preview} />
      <div class="row wrap">
        <${Lanes} />
        <span class="grow"></span>
        ${state.isRunning.value && html`<button type="button" onClick=${state.stopAll}>Stop all</button>`}
        <button class="primary" disabled=${!state.prompt.value.trim()}>Race</button>
      </div>
      <div class="row wrap">
        <${Variations} />
        <button type="button" onClick=${state.demo}>Demo: 300 lines</button>
        <${CopyLink} />
      </div>
    </form>
  `;
}

const Lanes = () => html`
  <fieldset class="chips">
    <legend class="hidden">Lanes</legend>
    ${LANES.map(
      (lane) => html`
        <label class="chip" title=${lane.words}>
          <input
            type="checkbox"
            checked=${state.chosen.value.includes(lane.name)}
            onChange=${(event) => {
              state.toggleLane(lane.name);
              event.target.checked = state.chosen.value.includes(lane.name);
            }}
          />
          ${lane.title}
        </label>
      `,
    )}
  </fieldset>
`;

const Variations = () => html`
  <label class="row small-label">
    <input
      type="number"
      min="5"
      max="10"
      aria-label="How many variations"
      value=${state.numVariations.value}
      onInput=${(event) => (state.numVariations.value = Math.min(10, Math.max(2, event.target.valueAsNumber || 6)))}
    />
    <button type="button" disabled=${!state.prompt.value.trim()} onClick=${state.vary}>Variations</button>
  </label>
`;

const CopyLink = () => html`
  <${Copy} kind="plain" title="Copy link" text=${() => new URL(state.raceLink(), location.href).href} otherwise="Cannot copy here" />
`;

function Parent() {
  const parent = state.parent.value;
  if (!parent) return null;
  return html`
    <p class="row">
      <span>Goes on from the answer of <strong>${parent.title}</strong></span>
      <button type="button" class="plain small" onClick=${() => (state.parent.value = null)}>Begin anew</button>
    </p>
  `;
}

function Race({ runs }) {
  const over = runs.filter((run) => run.phase.value === "done");
  const first = runs.length > 1 && over.length > 0 ? over.reduce((a, b) => (a.endMs.value <= b.endMs.value ? a : b)) : null;
  return html`
    <div class=${`race lanes-${runs.length}`}>
      ${runs.map((run) => html`<${RunCard} key=${run.lane.name} run=${run} isFirst=${run === first} />`)}
    </div>
  `;
}

const Welcome = () => html`
  <section class="state welcome">
    <strong>Fast and deep models, side by side on one WebSocket.</strong>
    <p class="quiet">
      Ask something and watch both answer, or let <code>auto</code> decide; the line under the prompt says what it would do
      and why. No idea? The demo writes 300 lines of Python on both.
    </p>
    <button class="primary" onClick=${state.demo}>Run the demo</button>
  </section>
`;
