// What /admin/events tells, as signals. It is followed while the page is shown, and again after a loss.
import { batch, signal } from "../vendor/preact.js";
import { serverEvents } from "../shared/server_events.js";
import { wantsKey } from "../shared/key_dialog.js";
import { adminKey } from "../shared/site.js";

const AGAIN_MS = 1_000;
const SILENCE_MS = 2_500; // the gateway speaks once a second at least
const MAX_POINTS = 900; // a quarter of an hour
const MAX_DECISIONS = 200;

export const connection = signal({ state: "connecting", since: Date.now() / 1000, error: null });
export const gateway = signal(null);
export const backends = signal([]);
export const pools = signal([]);
export const problems = signal([]);
export const decisions = signal([]); // the latest first
export const points = signal([]); // in order of time

function stand(state, error = null) {
  const { state: before, since } = connection.value;
  connection.value = { state, since: before === state ? since : Date.now() / 1000, error };
}

function take(sections) {
  batch(() => {
    stand("live");
    if (sections.gateway) gateway.value = sections.gateway;
    if (sections.backends) backends.value = sections.backends;
    if (sections.pools) pools.value = sections.pools;
    if (sections.problems) problems.value = sections.problems;
    if (sections.history) points.value = sections.history;
    if (sections.point) points.value = [...points.value, sections.point].slice(-MAX_POINTS);
    if (sections.decisions) {
      const known = new Set(decisions.value.map(({ id }) => id));
      const fresh = sections.decisions.filter(({ id }) => !known.has(id));
      const all = [...fresh, ...decisions.value].sort((a, b) => b.at - a.at);
      decisions.value = all.slice(0, MAX_DECISIONS);
    }
  });
}

/** Whether the gateway does not know the key: it is not asked again before there is another. */
export const isRefused = (error) => error?.status === 401 || error?.status === 403;

/** Follows until the returned function is called. */
export function follow() {
  const leaving = new AbortController();
  run(leaving.signal);
  return () => leaving.abort();
}

async function run(left) {
  while (!left.aborted) {
    const attempt = new AbortController();
    const leave = () => attempt.abort();
    left.addEventListener("abort", leave);
    let silence = setTimeout(leave, SILENCE_MS);
    try {
      for await (const { data } of serverEvents("/admin/events", adminKey.value, attempt.signal)) {
        clearTimeout(silence);
        silence = setTimeout(leave, SILENCE_MS);
        take(data);
      }
      stand("lost");
    } catch (error) {
      if (left.aborted) return;
      stand("lost", error);
      if (isRefused(error)) {
        wantsKey.value = "admin";
        return;
      }
    } finally {
      clearTimeout(silence);
      left.removeEventListener("abort", leave);
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}
