// What is wrong, since when, and what to do about it. It is the first thing on the page.
import { html, signal, useEffect } from "../vendor/preact.js";
import { ago, clock } from "../shared/format.js";
import { wantsKey } from "../shared/key_dialog.js";
import { connection, isRefused, problems } from "./feed.js";

const nowS = signal(Date.now() / 1000);

function LOST(since, error) {
  if (isRefused(error)) {
    return {
      name: "refused",
      severity: "bad",
      since,
      words: error.message,
      todo: "The page waits for another key: one of admin.keys, or LANEWISE_ADMIN_KEY.",
      needsKey: true,
      runbook: "configuration.md",
    };
  }
  return {
    name: "lost",
    severity: "bad",
    since,
    words: error?.status ? error.message : "This gateway does not answer; what is shown below is from before.",
    todo: `${error?.status ? "" : "See whether its process runs. "}The page asks again every second.`,
    runbook: "operations.md#start-and-stop",
  };
}

export function Problems() {
  useEffect(() => {
    const timer = setInterval(() => (nowS.value = Date.now() / 1000), 1_000);
    return () => clearInterval(timer);
  }, []);
  const { state, since, error } = connection.value;
  const found = state === "lost" ? [LOST(since, error), ...problems.value] : problems.value;
  return html`
    <section class="card problems" aria-label="What is wrong" aria-live="polite">
      ${found.length === 0
        ? html`<p class="row"><span class=${`dot ${state === "live" ? "good" : ""}`}></span>${state === "live" ? "Nothing is wrong." : "Connecting …"}</p>`
        : found.map((each) => html`<${Problem} key=${each.name} problem=${each} />`)}
    </section>
  `;
}

const Problem = ({ problem }) => html`
  <article class=${`notice ${problem.severity}`}>
    <p class="line">
      <strong>${problem.words}</strong>
      <span class="quiet">
        since ${clock(problem.since)}${problem.is_older ? " or earlier" : ""} (${ago(problem.since, nowS.value)})
      </span>
    </p>
    <p class="quiet">${problem.todo} Runbook: <code>docs/${problem.runbook}</code></p>
    ${problem.needsKey && html`<button onClick=${() => (wantsKey.value = "admin")}>Use another key</button>`}
  </article>
`;
