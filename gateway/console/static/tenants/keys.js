// A tenant's keys: made, used, revoked. A new one is shown once, with what to paste into a client.
import { html, signal } from "../vendor/preact.js";
import { useAction } from "../shared/action.js";
import { admin } from "../shared/api.js";
import { ago, date } from "../shared/format.js";
import { useLoaded } from "../shared/loaded.js";
import { Snippets } from "./snippets.js";

const LIVES = [
  ["never", null],
  ["in a day", 86_400],
  ["in 30 days", 30 * 86_400],
  ["in a year", 365 * 86_400],
];

// Keys that were made and not yet kept, by tenant: to look at another one loses none.
const unkept = signal({});

export function Keys({ tenant, canWrite, changed }) {
  const { value: keys, error, again } = useLoaded(() => admin("GET", `keys?tenant=${encodeURIComponent(tenant.id)}`), [tenant.id]);
  const made = unkept.value[tenant.id];
  const setMade = (key) => (unkept.value = { ...unkept.value, [tenant.id]: key });
  const { run, isBusy, told } = useAction();
  const reload = () => (again(), changed());

  const make = (event) => {
    event.preventDefault();
    const { name, life } = Object.fromEntries(new FormData(event.target));
    run(async () => {
      const asked = { tenant: tenant.id, name, expires_in_s: LIVES[Number(life)][1] };
      setMade(await admin("POST", "keys", asked));
      reload();
    });
  };
  const revoke = (key) => {
    const named = key.name ? `${key.name} (${key.id})` : key.id;
    if (!confirm(`Revoke the key ${named} for ever? What runs under it ends.`)) return;
    run(async () => (await admin("POST", `keys/${key.id}/revoke`), reload()), "Revoked: what ran under it has ended.");
  };

  return html`
    <section class="card" aria-labelledby="keys">
      <header><h2 id="keys">Keys of ${tenant.id}</h2></header>
      ${canWrite &&
      html`
        <form class="row wrap" onSubmit=${make}>
          <input name="name" aria-label="Name of the key" placeholder="What it is for" maxlength="64" autocomplete="off" />
          <label>Expires <select name="life">${LIVES.map(([title], index) => html`<option value=${index}>${title}</option>`)}</select></label>
          <button class="primary" disabled=${isBusy}>Make a key</button>
        </form>
      `}
      ${told} ${error && html`<p class="fault">${error.message}</p>`}
      ${made && html`<${Snippets} made=${made} close=${() => setMade(null)} />`}
      ${keys && (keys.length ? html`<${Table} keys=${keys} canWrite=${canWrite} isBusy=${isBusy} revoke=${revoke} />` : html`<p class="quiet">None was made at run time${tenant.configured ? "; configured keys are not listed" : ""}.</p>`)}
    </section>
  `;
}

const Table = ({ keys, canWrite, isBusy, revoke }) => html`
  <div class="scroll" tabindex="0" role="group" aria-label="Keys">
    <table>
      <thead><tr><th>Name</th><th>Id</th><th>State</th><th>Made</th><th>Last used</th><th>Expires</th><th><span class="hidden">Actions</span></th></tr></thead>
      <tbody>
        ${keys.map(
          (key) => html`
            <tr key=${key.id}>
              <td>${key.name}</td>
              <td class="mono">${key.id}</td>
              <td><span class=${`tag ${key.state === "active" ? "good" : "bad"}`}>${key.state}</span></td>
              <td>${date(key.created_at)} by ${key.created_by}</td>
              <td>${key.last_used_at ? `${ago(key.last_used_at)} ago` : "never"}</td>
              <td>${key.expires_at ? date(key.expires_at) : "never"}</td>
              <td>
                ${canWrite && key.state === "active" && html`<button class="danger small" disabled=${isBusy} aria-label=${`Revoke ${key.id}`} onClick=${() => revoke(key)}>Revoke</button>`}
              </td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  </div>
`;
