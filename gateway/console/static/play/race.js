// The state of *Play*: the prompt, the lanes, and the runs of the race that is on.
import { computed, effect, signal } from "../vendor/preact.js";
import { address, linkTo, showOptions } from "../shared/address.js";
import { DEFAULT_LANES, DEMO, LANES, MAX_LANES, variations } from "./lanes.js";
import { Run } from "./run.js";

const TICK_MS = 100;

export const prompt = signal("");
export const chosen = signal(DEFAULT_LANES); // names of lanes, in the order of LANES
export const numVariations = signal(6);
export const runs = signal([]);
export const parent = signal(null); // { response, title }: what the next race goes on from
export const nowMs = signal(performance.now()); // moves while something runs
export const isRunning = computed(() => runs.value.some((run) => !run.isOver));

effect(() => {
  if (!isRunning.value) return undefined;
  const timer = setInterval(() => (nowMs.value = performance.now()), TICK_MS);
  return () => clearInterval(timer);
});

// A link brings a prompt and lanes; it starts nothing, since that costs the reader's money.
effect(() => {
  const { page, options } = address.value;
  if (page !== "play" || !options.has("prompt")) return;
  prompt.value = options.get("prompt");
  const named = (options.get("lanes") ?? "").split(",");
  const known = LANES.filter(({ name }) => named.includes(name)).map(({ name }) => name);
  if (known.length) chosen.value = known.slice(0, MAX_LANES);
});

export const raceLink = () => linkTo("play", { prompt: prompt.value, lanes: chosen.value.join(",") });

export function toggleLane(name) {
  const names = chosen.value.includes(name)
    ? chosen.value.filter((each) => each !== name)
    : [...chosen.value, name];
  if (names.length === 0 || names.length > MAX_LANES) return;
  chosen.value = LANES.map((lane) => lane.name).filter((each) => names.includes(each));
}

export function race() {
  showOptions({ prompt: prompt.value, lanes: chosen.value.join(",") });
  begin(LANES.filter(({ name }) => chosen.value.includes(name)));
}

export function demo() {
  prompt.value = DEMO.prompt;
  chosen.value = DEMO.lanes;
  parent.value = null;
  race();
}

export const vary = () => begin([variations(numVariations.value)]);

function begin(lanes) {
  if (!prompt.value.trim()) return;
  stopAll();
  runs.value = lanes.map((lane) => new Run(lane));
  for (const run of runs.value) run.start(prompt.value, parent.value?.response);
}

export function stopAll() {
  for (const run of runs.value) run.stop();
}
