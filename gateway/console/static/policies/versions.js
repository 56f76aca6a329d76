// All versions that were ever stored: look into one, put it in force, or let it decide as a shadow.
import { html } from "../vendor/preact.js";
import { useAction } from "../shared/action.js";
import { date } from "../shared/format.js";
import { activate, mayReplace, named, open, shadow, versions } from "./store.js";

export function Versions({ canWrite }) {
  const { run, isBusy, told } = useAction();
  const { versions: stored, active, shadow: shadowed } = versions.value;
  const putInForce = (version) => mayReplace(named(version)) && run(() => activate(version, "from the console"), `${named(version)} is in force.`);
  return html`
    <section class="card" aria-labelledby="versions">
      <header><h2 id="versions">Versions</h2></header>
      ${told}
      ${stored.length === 0 && html`<p class="quiet">None is stored yet: the configured policy is in force.</p>`}
      <ul class="list">
        ${stored.map(
          (each) => html`
            <li key=${each.version} class="row wrap">
              <strong>v${each.version}</strong>
              ${each.version === active && html`<span class="tag good">in force</span>`}
              ${each.version === shadowed && html`<span class="tag">shadow</span>`}
              <span class="quiet">${each.author}, ${date(each.at)} ${each.comment}</span>
              <span class="grow"></span>
              <button class="small plain" onClick=${() => run(() => open(each.version))}>Open</button>
              ${canWrite &&
              html`
                <button class="small" disabled=${isBusy || each.version === shadowed} onClick=${() => run(() => shadow(each.version), `v${each.version} decides as a shadow.`)}>Shadow</button>
                <button class="small" disabled=${isBusy || each.version === active} onClick=${() => putInForce(each.version)}>Activate</button>
              `}
            </li>
          `,
        )}
      </ul>
    </section>
  `;
}
