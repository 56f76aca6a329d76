// The last quarter of an hour: tokens by engine, and tasks by route.
import { html } from "../vendor/preact.js";
import { Plot } from "../shared/plot.js";
import { backends, points } from "./feed.js";

const ROUTES = ["fast", "deep", "parallel", "none"];

export function Charts() {
  const shown = points.value;
  const times = shown.map(({ at }) => at);
  const tokens = backends.value.map(({ name, group }) => ({
    name,
    kind: group,
    values: shown.map((point) => point.tokens_per_s[name] ?? 0),
  }));
  const tasks = ROUTES.map((name) => ({
    name: name === "none" ? "refused" : name,
    kind: name,
    values: shown.map((point) => point.tasks_per_s[name] ?? 0),
  }));
  return html`
    <section class="card charts" aria-label="Throughput">
      <${Plot} title="Tokens" unit="per second" times=${times} series=${tokens} />
      <${Plot} title="Tasks that ended" unit="per second" times=${times} series=${tasks} />
    </section>
  `;
}
