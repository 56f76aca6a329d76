// A tenant's tier and limits, changed live: they hold from the next task of every connection on.
import { html } from "../vendor/preact.js";
import { useAction } from "../shared/action.js";
import { admin } from "../shared/api.js";
import { count } from "../shared/format.js";

const GROUPS = ["fast", "deep"];
const LIMITS = [
  ["requests_per_min", "Requests/min"],
  ["tokens_per_min", "Tokens/min"],
  ["max_concurrent", "At once"],
  ["tokens_per_day", "Tokens/day"],
];

export function Limits({ tenant, tiers, canWrite, changed }) {
  const { run, isBusy, told } = useAction();
  const save = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    run(async () => {
      for (const change of changesOf(form, tenant)) {
        await admin("PATCH", `tenants/${encodeURIComponent(tenant.id)}`, change);
      }
      changed();
    }, "In force from the next task on.");
  };
  return html`
    <section class="card" aria-labelledby="limits">
      <header><h2 id="limits">Limits</h2></header>
      <form onSubmit=${save}>
        <label>Tier <select name="tier" disabled=${!canWrite}>
          ${tiers.map(({ name }) => html`<option selected=${name === tenant.tier}>${name}</option>`)}
          ${!tiers.some(({ name }) => name === tenant.tier) && html`<option selected>${tenant.tier}</option>`}
        </select></label>
        <table>
          <thead><tr><th>Limit</th>${GROUPS.map((group) => html`<th class="number">${group}</th>`)}</tr></thead>
          <tbody>
            ${LIMITS.map(
              ([name, title]) => html`
                <tr>
                  <td>${title}</td>
                  ${GROUPS.map((group) => html`<td class="number"><${Limit} tenant=${tenant} group=${group} name=${name} title=${title} canWrite=${canWrite} /></td>`)}
                </tr>
              `,
            )}
          </tbody>
        </table>
        <p class="quiet">
          ${tenant.configured ? "This tenant stands in the configuration: change it there." : "An empty field is as the tier says; its number stands there in grey."}
        </p>
        ${canWrite && html`<button class="primary" disabled=${isBusy}>Save</button>`}
      </form>
      ${told}
    </section>
  `;
}

function Limit({ tenant, group, name, title, canWrite }) {
  const own = tenant.own_limits[group]?.[name];
  const now = tenant.limits[group]?.[name];
  if (!canWrite) return now == null ? "–" : count(now);
  return html`
    <input
      key=${`${tenant.id} ${own}`}
      type="number"
      class="limit"
      min="0"
      name=${`${group}.${name}`}
      aria-label=${`${title}, ${group}`}
      defaultValue=${own ?? ""}
      placeholder=${now ?? "none"}
    />
  `;
}

/** The changes to ask for: a group of which a limit goes back to the tier is given back first, whole. */
function changesOf(form, tenant) {
  const wanted = {};
  const givenBack = {};
  for (const group of GROUPS) {
    const given = LIMITS.map(([name]) => [name, form.get(`${group}.${name}`)]).filter(([, value]) => value);
    wanted[group] = Object.fromEntries(given.map(([name, value]) => [name, Number(value)]));
    const own = tenant.own_limits[group] ?? {};
    if (Object.keys(own).some((name) => own[name] !== null && !(name in wanted[group]))) givenBack[group] = null;
    if (given.length === 0) delete wanted[group];
  }
  const changes = [{ tier: form.get("tier"), limits: givenBack }];
  if (Object.keys(wanted).length) changes.push({ limits: wanted });
  return changes;
}
