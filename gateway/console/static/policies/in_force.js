// What decides now, and the way back: always in sight.
import { html } from "../vendor/preact.js";
import { useAction } from "../shared/action.js";
import { load, mayRollBack, named, rollBack, shadow, versions } from "./store.js";

export function InForce({ canWrite }) {
  const { run, isBusy, told } = useAction();
  const { active, shadow: shadowed, in_force } = versions.value;
  const back = () => mayRollBack() && run(() => rollBack("from the console"), "Rolled back.");
  return html`
    <section class="card sticky" aria-label="In force">
      <div class="row wrap">
        <span>In force: <strong>${named(active)}</strong></span>
        ${in_force.version !== active && html`<span class="tag warn">this gateway still decides by v${in_force.version}</span>`}
        ${in_force.source === "last_good" && html`<span class="tag warn">last good copy</span>`}
        <span class="quiet">Shadow: ${shadowed ? `v${shadowed}` : "none"}</span>
        <span class="grow"></span>
        <button class="plain" onClick=${load}>Reload</button>
        ${canWrite && shadowed > 0 && html`<button disabled=${isBusy} onClick=${() => run(() => shadow(0), "No shadow policy decides any more.")}>End shadow</button>`}
        ${canWrite && html`<button class="danger" disabled=${isBusy || active === 0} onClick=${back}>Roll back</button>`}
      </div>
      ${told}
    </section>
  `;
}
