// A new tenant: a name and a tier; its keys are made after it.
import { html } from "../vendor/preact.js";
import { useAction } from "../shared/action.js";
import { admin } from "../shared/api.js";

export function NewTenant({ tiers, made }) {
  const { run, isBusy, told } = useAction();
  const make = (event) => {
    event.preventDefault();
    const asked = Object.fromEntries(new FormData(event.target));
    run(async () => {
      await admin("POST", "tenants", asked);
      event.target.reset();
      made(asked.id);
    });
  };
  return html`
    <form class="row wrap" onSubmit=${make}>
      <input name="id" aria-label="Id of the new tenant" placeholder="New tenant" required autocomplete="off" />
      <select name="tier" aria-label="Its tier">${tiers.map(({ name }) => html`<option>${name}</option>`)}</select>
      <button disabled=${isBusy}>Add</button>
    </form>
    ${told}
  `;
}
