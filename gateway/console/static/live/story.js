// One task from its arrival to its charge: what was seen in it, what was decided and why, how it went.
import { html, useEffect, useRef } from "../vendor/preact.js";
import { linkTo } from "../shared/address.js";
import { admin } from "../shared/api.js";
import { count, date, duration } from "../shared/format.js";
import { useLoaded } from "../shared/loaded.js";
import { ruleFrom } from "./rule_from.js";

export function Story({ record, close }) {
  const dialog = useRef(null);
  useEffect(() => {
    if (record && !dialog.current.open) dialog.current.showModal();
  }, [record]);
  if (!record) return null;
  return html`
    <dialog ref=${dialog} class="dialog wide" aria-labelledby="story" onClose=${close}>
      <header class="row">
        <h2 id="story">Task of ${record.tenant}, ${date(record.at)}</h2>
        <span class="grow"></span>
        <a class="button" href=${linkTo("policies", { rule: ruleFrom(record) })} onClick=${close}>Make a rule of this</a>
        <button onClick=${() => dialog.current.close()}>Close</button>
      </header>
      <p class="mono quiet">${record.id}</p>
      <${Timeline} record=${record} />
      <${Facts} title="What was asked" rows=${asked(record)} />
      <${Facts} title="What was decided" rows=${decided(record)} />
      <${Rules} record=${record} />
      <${Facts} title="What it took" rows=${taken(record)} />
    </dialog>
  `;
}

const asked = (record) => [
  ["Model", record.model],
  ["Asked for", [record.asked_route, record.asked_strategy, record.reasoning_effort, record.service_tier].filter(Boolean).join(", ")],
  ["Prompt", record.prompt_tokens == null ? null : `${count(record.prompt_tokens)} tokens, turn ${record.turns ?? 1}`],
  ["Kind of work", record.kind],
  ["Tools", record.tools || null],
  ["Deadline", record.deadline_ms == null ? null : duration(record.deadline_ms)],
];

const decided = (record) => [
  ["Class", record.label && `${record.label}; p(deep) ${record.p_deep?.toFixed(2)}, p(security) ${record.p_security?.toFixed(2)}`],
  ["Route", [record.route ?? "refused", record.strategy, ...record.backends].filter(Boolean).join(" · ")],
  ["Because of", record.rule ? `the rule ${record.rule}` : record.reason],
  ["Ranked", record.ranked.map((each, place) => `${place + 1}. ${each.route}${each.strategy ? ` (${each.strategy})` : ""}: ${each.reason}`).join("; ")],
  ["Policy", record.policy && `${record.policy}${record.canary ? ", as canary" : ""}`],
  ["Shadow policy", record.shadow && `${record.shadow.policy}: ${record.shadow.route} by ${record.shadow.rule}`],
];

const taken = (record) => [
  ["Outcome", [record.outcome, record.error].filter(Boolean).join(": ")],
  ["Answered by", record.answered_by],
  ...record.usage.map((each) => [
    each.backend,
    `${count(each.input_tokens)} in (${count(each.cached_tokens)} cached), ${count(each.output_tokens)} out${each.exact ? "" : ", about"}`,
  ]),
  ["Charged", `${count(record.cost)} weighted tokens`],
];

const Facts = ({ title, rows }) => html`
  <h3>${title}</h3>
  <dl class="facts">
    ${rows.filter(([, value]) => value).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}
  </dl>
`;

/** Its steps to scale: what it waited, what it took to the first word, and what it streamed. */
function Timeline({ record }) {
  const queued = record.queued_ms ?? 0;
  const first = Math.max(queued, record.ttft_ms ?? record.duration_ms);
  const steps = [
    ["queued", queued],
    ["to the first word", first - queued],
    ["streaming", Math.max(0, record.duration_ms - first)],
  ];
  let x = 0;
  return html`
    <svg class="timeline" viewBox="0 0 1000 24" preserveAspectRatio="none" role="img" aria-label="Timeline">
      ${steps.map(([name, ms], index) => {
        const width = (ms / Math.max(record.duration_ms, 1e-6)) * 1000;
        x += width;
        return html`<rect key=${name} class=${`step-${index}`} x=${x - width} y="0" width=${width} height="24" />`;
      })}
    </svg>
    <p class="line quiet">${steps.map(([name, ms], index) => html`<span><i class=${`swatch step-${index}`}></i> ${name} ${duration(ms)}</span>`)}</p>
  `;
}

/** Every rule and why not: by the policy in force now, where the text was recorded. */
function Rules({ record }) {
  const { value, error } = useLoaded(
    () => (record.text ? admin("POST", "explain", { prompt: record.text, tenant: record.tenant, model: record.model }) : Promise.resolve(null)),
    [record.id],
  );
  return html`
    <h3>Every rule, by the policy in force now</h3>
    ${!record.text && html`<p class="quiet">The prompt was not recorded: a policy does so with <code>record_text = true</code>.</p>`}
    ${error && html`<p class="fault">${error.message}</p>`}
    ${value && html`<pre tabindex="0" aria-label="Explanation">${value.text.join("\n")}</pre>`}
  `;
}
