// *Policies*: write one, see what it would change, and put it in force or back.
import { html, useEffect, useSignal } from "../vendor/preact.js";
import { me } from "../shared/me.js";
import { adminKey } from "../shared/site.js";
import { Fault, Loading, NoKey } from "../shared/states.js";
import { Audit } from "./audit.js";
import { Backtest } from "./backtest.js";
import { Canary } from "./canary.js";
import { Changes } from "./changes.js";
import { DryRun } from "./dry_run.js";
import { Explain } from "./explain.js";
import { InForce } from "./in_force.js";
import { Versions } from "./versions.js";
import { Writing } from "./writing.js";
import { error, load, versions } from "./store.js";

const TABS = [
  ["Explain", Explain],
  ["Changes", Changes],
  ["Dry run", DryRun],
  ["Back-test", Backtest],
  ["Canary", Canary],
];

export function Page() {
  if (!adminKey.value) return html`<h1>Policies</h1><${NoKey} kind="admin" />`;
  return html`<h1 class="hidden">Policies</h1><${Loaded} key=${adminKey.value} />`;
}

function Loaded() {
  useEffect(() => void load(), []);
  if (!versions.value || !me.value) {
    return error.value ? html`<${Fault} error=${error.value} again=${load} />` : html`<${Loading} what="policies" />`;
  }
  return html`
    ${error.value && html`<p class="notice bad" role="alert">${error.value.message}</p>`}
    <${InForce} canWrite=${!me.value.read_only} />
    <div class="split">
      <${Writing} canWrite=${!me.value.read_only} />
      <${Tabs} />
    </div>
    <div class="grid">
      <${Versions} canWrite=${!me.value.read_only} />
      <${Audit} />
    </div>
  `;
}

function Tabs() {
  const chosen = useSignal(0);
  const Shown = TABS[chosen.value][1];
  const onKey = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    chosen.value = (chosen.value + step + TABS.length) % TABS.length;
    event.currentTarget.children[chosen.value].focus();
  };
  return html`
    <section class="card">
      <div class="tabs" role="tablist" aria-label="Try the draft" onKeyDown=${onKey}>
        ${TABS.map(
          ([title], index) => html`
            <button
              class="plain"
              role="tab"
              id=${`tab-${index}`}
              aria-controls="tab-panel"
              aria-selected=${chosen.value === index}
              tabindex=${chosen.value === index ? 0 : -1}
              onClick=${() => (chosen.value = index)}
            >
              ${title}
            </button>
          `,
        )}
      </div>
      <div id="tab-panel" role="tabpanel" aria-labelledby=${`tab-${chosen.value}`}><${Shown} /></div>
    </section>
  `;
}
