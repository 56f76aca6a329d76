// Who changed what, when.
import { html } from "../vendor/preact.js";
import { date } from "../shared/format.js";
import { audit } from "./store.js";

const version = (state) => Object.values(state)[0];

export const Audit = () => html`
  <section class="card" aria-labelledby="audit">
    <header><h2 id="audit">Audit</h2></header>
    ${audit.value.length === 0 && html`<p class="quiet">Nobody has changed a policy yet.</p>`}
    <ul class="list">
      ${audit.value.map((line) => html`
        <li>
          <span class="quiet">${date(line.at)}</span> <strong>${line.author}</strong> ${line.action.replace("policies.", "")}${" "}
          v${version(line.before)} → v${version(line.after)} <span class="quiet">${line.comment}</span>
        </li>
      `)}
    </ul>
  </section>
`;
