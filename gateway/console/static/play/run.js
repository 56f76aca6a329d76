// One run: a prompt on one lane, from the request to its end. What the card shows are its signals.
import { batch, signal } from "../vendor/preact.js";
import { client } from "./client.js";

const FLUSH_MS = 60; // between two updates of what is shown
const MAX_SHOWN_CHARS = 200_000; // of one item; what came before is dropped from the page
const CHARS_PER_TOKEN = 4; // until the end says how many there were

export class Run {
  phase = signal("waiting"); // then running, done, failed or stopped
  items = signal([]); // { id, kind: "answer" or "commentary", text, isCut }
  routing = signal(null);
  usage = signal(null);
  note = signal(""); // what it waits for, how it was steered, or why it began again
  error = signal(null);
  firstMs = signal(null); // from the start to the first word
  endMs = signal(null); // from the start to the end
  numChars = signal(0);
  response = null; // the last one, to go on from
  #stream = null;
  #pending = new Map(); // item id -> { kind, text } since the last update
  #timer = null;
  #waits = false; // and the note says for what, until the first word

  constructor(lane) {
    this.lane = lane;
    this.startedMs = performance.now();
  }

  get isOver() {
    return this.endMs.value !== null;
  }

  /** Milliseconds from the start to now, or to the end. */
  elapsedMs(nowMs) {
    return this.endMs.value ?? Math.max(0, nowMs - this.startedMs);
  }

  async start(prompt, after) {
    try {
      this.#stream = (await client()).stream(prompt, { ...this.lane.options, after: after ?? undefined });
      if (this.phase.value === "stopped") return;
      this.phase.value = "running";
      for await (const event of this.#stream) this.#take(event);
      this.#end(this.phase.value === "stopped" ? "stopped" : "done");
    } catch (error) {
      this.error.value = this.phase.value === "stopped" ? null : error;
      this.#end(this.phase.value === "stopped" ? "stopped" : "failed");
    }
  }

  stop() {
    if (this.isOver) return;
    this.phase.value = "stopped";
    this.#stream?.cancel();
  }

  /** Redirects the answer while it streams; rejects if it is too late. */
  async steer(words) {
    await this.#stream.steer(words);
    this.#say(`Steered: ${words}`);
  }

  #take(event) {
    if (event.type === "text") {
      this.#append(event.itemId, event.phase === "commentary" ? "commentary" : "answer", event.text);
    } else if (event.type === "started") {
      this.routing.value = event.response.routing;
    } else if (event.type === "waiting") {
      this.#say(`Waits for the ${event.group} pool${event.place ? `, place ${event.place}` : ""}`);
      this.#waits = true;
    } else if (event.type === "restarted") {
      this.#say(`Began again: ${event.why}`);
      this.items.value = [];
    } else if (event.type === "done") {
      this.response = event.response;
      this.routing.value = event.response.routing;
      this.usage.value = event.response.usage;
    } else if (event.event.type === "response.reasoning_summary_text.delta") {
      this.#append(event.event.item_id, "commentary", event.event.delta);
    }
  }

  #say(words) {
    this.note.value = words;
    this.#waits = false;
  }

  #append(id, kind, text) {
    this.firstMs.value ??= performance.now() - this.startedMs;
    if (this.#waits) this.#say("");
    const pending = this.#pending.get(id);
    if (pending) pending.text += text;
    else this.#pending.set(id, { kind, text });
    this.#timer ??= setTimeout(() => this.#flush(), FLUSH_MS);
  }

  #flush() {
    clearTimeout(this.#timer);
    this.#timer = null;
    const items = [...this.items.value];
    let numChars = this.numChars.value;
    for (const [id, { kind, text }] of this.#pending) {
      numChars += text.length;
      const at = items.findIndex((item) => item.id === id);
      const whole = (at < 0 ? "" : items[at].text) + text;
      const isCut = whole.length > MAX_SHOWN_CHARS || (at >= 0 && items[at].isCut);
      const item = { id, kind, text: whole.slice(-MAX_SHOWN_CHARS), isCut };
      if (at < 0) items.push(item);
      else items[at] = item;
    }
    this.#pending.clear();
    batch(() => {
      this.items.value = items;
      this.numChars.value = numChars;
    });
  }

  #end(phase) {
    this.#flush();
    batch(() => {
      this.endMs.value = performance.now() - this.startedMs;
      this.phase.value = phase;
    });
  }
}

/** Tokens of the answer, and whether that is an estimate because the end has not told yet. */
export function tokensOf(run) {
  const usage = run.usage.value;
  if (usage) return { tokens: usage.output_tokens, isEstimate: false };
  return { tokens: Math.round(run.numChars.value / CHARS_PER_TOKEN), isEstimate: true };
}

/** Tokens per second since the first word; null before there is a time to divide by. */
export function tokenRate(run, nowMs) {
  if (run.firstMs.value === null) return null;
  const seconds = (run.elapsedMs(nowMs) - run.firstMs.value) / 1000;
  return seconds > 0.02 ? tokensOf(run).tokens / seconds : null;
}
