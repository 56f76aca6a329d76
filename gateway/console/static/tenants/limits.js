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
    const change = changeOf(form, tenant);
    const isNothing = Object.keys(change).length === 0;
    run(
      async () => {
        if (isNothing) return;
        await admin("PATCH", `tenants/${encodeURIComponent(tenant.id)}`, change);
        changed();
      },
      isNothing ? "Nothing differs from what is in force." : "In force from the next task on.",
    );
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

/** What differs from what was loaded, as one change: it holds whole or not at all, and undoes nobody's else. */
function changeOf(form, tenant) {
  const change = {};
  if (form.get("tier") !== tenant.tier) change.tier = form.get("tier");
  for (const group of GROUPS) {
    for (const [name] of LIMITS) {
      const own = tenant.own_limits[group]?.[name] ?? "";
      const wanted = form.get(`${group}.${name}`);
      if (wanted === String(own)) continue;
      change.limits ??= {};
      change.limits[group] ??= {};
      change.limits[group][name] = wanted === "" ? "tier" : Number(wanted);
    }
  }
  return change;
}
