// Where a prompt would go by the draft as it last was valid, and why each rule takes it or not.
import { html, signal, useEffect, useSignal } from "../vendor/preact.js";
import { admin } from "../shared/api.js";
import { OfValid } from "./of_valid.js";
import { validDraft } from "./store.js";

const PAUSE_MS = 300;
const prompt = signal("Refactor the billing module.");
const tenant = signal("");

export function Explain() {
  const told = useSignal(null);
  useEffect(() => {
    let isCurrent = true;
    const timer = setTimeout(async () => {
      if (!prompt.value.trim() || validDraft.value === null) {
        told.value = null;
        return;
      }
      const question = { prompt: prompt.value, tenant: tenant.value || null, document: validDraft.value, name: "console" };
      const answer = await admin("POST", "explain", question).catch((error) => ({ error }));
      if (isCurrent) told.value = answer;
    }, PAUSE_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [prompt.value, tenant.value, validDraft.value]);
  return html`
    <label class="field">Prompt <textarea rows="2" value=${prompt.value} onInput=${(event) => (prompt.value = event.target.value)}></textarea></label>
    <label class="field">Tenant <input value=${tenant.value} placeholder="the first" onInput=${(event) => (tenant.value = event.target.value)} /></label>
    <${OfValid} />
    ${told.value && html`<${Answer} told=${told.value} />`}
  `;
}

function Answer({ told }) {
  if (told.error) return html`<p class="fault" role="status">${told.error.message}</p>`;
  const [best] = told.routes;
  return html`
    <p class="line" role="status">
      ${best
        ? html`<span class=${`tag ${best.route}`}>${best.route}${best.strategy ? ` · ${best.strategy}` : ""}</span><span>${best.why}</span>`
        : html`<span class="fault">${told.refusal?.message}</span>`}
    </p>
    <p class="quiet">${told.label}; p(deep) ${told.p_deep.toFixed(2)}, p(security) ${told.p_security.toFixed(2)}. ${told.signals.join("; ")}</p>
    ${!told.rules_asked && html`<p class="quiet">The rules were not asked: what is said above comes before them.</p>`}
    <ul class="rules">
      ${told.rules.map(
        (rule) => html`
          <li>
            <strong>${rule.name}</strong> <span class=${`tag ${rule.fired ? "good" : ""}`}>${rule.fired ? "fires" : "no"}</span>
            <span class="quiet">${rule.why.join("; ")}</span>
          </li>
        `,
      )}
    </ul>
  `;
}
