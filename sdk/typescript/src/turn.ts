/**
 * One turn, without its socket: what to send, what comes back, what a loss leaves to do.
 * The same state machine as the Python SDK's `sdk/python/lanewise/turn.py`.
 */

import type { ResponseFields, Routing, Usage } from "./types.js";

export type Item = Record<string, unknown>;
export type Input = string | Item[];
export type Fields = Record<string, unknown>;

/** A refusal or a failure: `code` for programs, `retryAfterMs` where waiting helps. */
export class LanewiseError extends Error {
  override name = "LanewiseError";
  constructor(
    readonly code: string,
    message: string,
    readonly status?: number,
    readonly retryAfterMs?: number,
    readonly param?: string | null,
  ) {
    super(message);
  }
}

/** A response; `status` is `completed` or `incomplete`: one that failed is an error. */
export class Response {
  readonly id: string;
  readonly status: string;
  readonly model: string;
  readonly output: Item[];
  readonly usage: Usage | null;
  readonly routing: Routing | null;
  readonly incompleteReason: string | null;
  readonly previousResponseId: string | null;

  /**
   * `fields`: all of them, as they came. `asked` and `after`: what it answered, for a server that
   * has forgotten it.
   */
  constructor(
    readonly fields: ResponseFields,
    readonly asked: Item[] = [],
    readonly after?: Response | string,
  ) {
    this.id = fields.id;
    this.status = fields.status;
    this.model = fields.model;
    this.output = fields.output ?? [];
    this.usage = fields.usage ?? null;
    this.routing = fields.routing ?? null;
    this.incompleteReason = fields.incomplete_details?.reason ?? null;
    this.previousResponseId = fields.previous_response_id ?? null;
  }

  /** The text of all messages; with a `final_answer` among them, only that. */
  get text(): string {
    const messages = this.output.filter((item) => item.type === "message");
    const final = messages.filter((item) => item.phase === "final_answer");
    const parts = (final.length ? final : messages).flatMap((item) => (item.content ?? []) as any[]);
    return parts.map((part) => part.text ?? part.refusal ?? "").join("");
  }

  /**
   * Tool calls to answer by `create([outputs], { after: response })`. One that was cut, by a cancel
   * or a limit, is none: it must not be run.
   */
  get calls(): Item[] {
    return this.output.filter(
      ({ type, status }) =>
        (type === "function_call" || type === "custom_tool_call") && status !== "incomplete",
    );
  }

  /** The whole conversation as input items; undefined if it began before this client. */
  context(): Item[] | undefined {
    const turns: Response[] = [this];
    let root: Response | string | undefined = this.after;
    for (; root instanceof Response; root = root.after) turns.unshift(root);
    if (root !== undefined) return undefined;
    return turns.flatMap((turn) => [...turn.asked, ...turn.output]);
  }
}

/**
 * What a stream tells. `restarted`: the text since the last `started` is void and comes anew.
 * `rejoined`: the connection was lost, and the answer goes on where it was.
 */
export type Event =
  | { type: "started"; response: Response }
  | { type: "text"; text: string; phase: string | null; itemId: string }
  | { type: "waiting"; group: string; place: number | null; expectedWaitMs: number | null }
  | { type: "restarted"; why: string }
  | { type: "rejoined"; response: Response }
  | { type: "other"; event: Fields }
  | { type: "done"; response: Response };

export interface Steer {
  target: string;
  items: Item[];
  outcome: boolean | LanewiseError | null;
}

/**
 * `counts`: against the limit of retries, after a pause. `rejoins`: only the rest of the response is
 * to be asked for.
 */
export interface Again {
  why: string;
  counts: boolean;
  retryAfterMs?: number;
  rejoins?: boolean;
}

/** What came of a response, so that none of it is told twice after a loss. */
class Received {
  number = -1; // of the last event
  #itemId: string | null = null; // of the item that is open
  #kinds = new Set<string>(); // of its events
  #numChars = 0; // of its text
  #numSkipped: number | null = null; // chars that came again; null: nothing comes again

  /** Notes an event; false for one that was told before the loss. */
  take(event: any): boolean {
    this.number = Math.max(this.number, event.sequence_number ?? -1);
    const itemId: string | null = event.item_id ?? event.item?.id ?? null;
    if (itemId === null) return true;
    if (event.type === "response.output_item.added" && itemId !== this.#itemId) {
      [this.#itemId, this.#kinds] = [itemId, new Set()];
      [this.#numChars, this.#numSkipped] = [0, null];
    }
    if (itemId !== this.#itemId) return true;
    if (event.type === "response.output_item.done") {
      this.#itemId = null;
      return true;
    }
    return this.#isNew(event);
  }

  #isNew(event: any): boolean {
    const isAgain = this.#numSkipped !== null && this.#kinds.has(event.type);
    this.#kinds.add(event.type);
    if (!event.type.endsWith(".delta")) return !isAgain;
    if (this.#numSkipped !== null) {
      const numKnown = Math.min(event.delta.length, this.#numChars - this.#numSkipped);
      event.delta = event.delta.slice(numKnown);
      this.#numSkipped += numKnown + event.delta.length;
    }
    this.#numChars += event.delta.length;
    return event.delta !== "";
  }

  /** Expects the open item again, from its beginning. */
  rejoin(): void {
    this.#numSkipped = 0;
  }
}

/** Codes of refusals that a fresh connection, or a restarted gateway, does not give. */
export const ELSEWHERE = new Set(["server_draining", "websocket_connection_limit_reached"]);
/** With more of what the model says to the client: its answer, or why it refuses one. */
const WORDS = new Set(["response.output_text.delta", "response.refusal.delta"]);
const TERMINALS = new Set(["response.completed", "response.incomplete", "response.failed"]);
const FIRST_DELAY_MS = 500;
const MAX_DELAY_MS = 8000;

export class Turn {
  responseId: string | null = null;
  cancelled = false;
  numRetries = 0;
  again: Again | null = null;
  over = false;
  error: LanewiseError | null = null;
  #fields: Fields;
  #asked: Item[];
  #after: Response | string | undefined;
  #whole = false; // the server has forgotten the parent: send all of it
  #shown = false; // text that a restart makes void
  #phases = new Map<string, string | null>();
  #steers: Steer[] = []; // unanswered, or accepted and without a successor yet
  #ended: Response | null = null; // a steered response whose successor is awaited
  #received = new Received();
  #hasBegun = false; // its response: `started` was told
  #rejoining: string | null = null; // why the rest of its response is asked for

  constructor(fields: Fields, asked: Input, after?: Response | string) {
    this.#fields = fields;
    this.#asked = asItems(asked);
    this.#after = after;
  }

  /** The `response.create` to send now, or what asks for the rest of its response. */
  frame(streamId: string): Fields {
    const again = this.again;
    this.again = null;
    if (again?.rejoins) {
      return {
        type: "response.rejoin",
        stream_id: streamId,
        response_id: this.responseId,
        starting_after: this.#received.number,
      };
    }
    const frame: Fields = { ...this.#fields, type: "response.create", stream_id: streamId };
    const after = this.#after;
    if (after instanceof Response && this.#whole) {
      return { ...frame, input: [...(after.context() ?? []), ...this.#asked] };
    }
    if (after !== undefined) {
      frame.previous_response_id = after instanceof Response ? after.id : after;
    }
    return { ...frame, input: this.#asked };
  }

  /** Note a steer that is about to be sent; its `outcome` is set by what comes back. */
  steer(target: string, added: Input): Steer {
    const outcome = this.over ? tooLate() : this.cancelled ? cancelled() : null;
    const steer: Steer = { target, items: asItems(added), outcome };
    if (outcome === null) this.#steers.push(steer);
    return steer;
  }

  /** Whether its response runs here: while the rest of it is asked for, nobody knows it. */
  get takesSteers(): boolean {
    return this.responseId !== null && this.again === null && this.#rejoining === null;
  }

  fail(error: LanewiseError): void {
    this.error = error;
    this.#finish();
  }

  /** The socket is gone: the rest of the response is to be asked for. */
  lost(why: string, retryAfterMs?: number): Event[] {
    if (this.over) return [];
    if (this.cancelled) {
      this.fail(cancelled());
      return [];
    }
    if (this.responseId !== null && !this.#steers.length && !this.#ended) {
      this.#rejoining = why;
      this.again = { why, counts: true, retryAfterMs, rejoins: true };
      return [];
    }
    return this.#restart(why, retryAfterMs);
  }

  /** Nobody has the rest: all since the last response that ended is to be sent again. */
  #restart(why: string, retryAfterMs?: number): Event[] {
    this.#rejoining = null;
    if (this.#ended) {
      [this.#after, this.#asked, this.#ended, this.#whole] = [this.#ended, [], null, false];
    }
    for (const steer of this.#steers) {
      if (steer.target === this.responseId) {
        steer.outcome = true; // what is sent again holds it
        this.#asked = [...this.#asked, ...steer.items];
      } else {
        steer.outcome ??= lost(why); // a sub-task's: nobody knows whether it got there
      }
    }
    this.#steers = [];
    const shown = this.#shown;
    this.#shown = false;
    this.#hasBegun = false;
    this.responseId = null;
    this.again = { why, counts: true, retryAfterMs };
    return shown ? [{ type: "restarted", why }] : [];
  }

  /** Take one event of the turn's stream; one that makes no sense ends the turn. */
  receive(event: any): Event[] {
    try {
      return this.#take(event);
    } catch (error) {
      const got = `Expected an event of the protocol, got '${event.type}' (${error}).`;
      this.fail(new LanewiseError("invalid_event", got));
      return [];
    }
  }

  #take(event: any): Event[] {
    const kind: string = event.type;
    if (kind === "error") return this.#refused(errorOf(event));
    if (kind.startsWith("response.steer.")) return this.#steered(kind, event);
    if (!this.#received.take(event)) return [];
    if (kind === "response.created") return this.#created(new Response(event.response));
    if (TERMINALS.has(kind)) return this.#terminal(event.response);
    if (WORDS.has(kind)) {
      this.#shown = true;
      const phase = this.#phases.get(event.item_id) ?? null;
      return [{ type: "text", text: event.delta, phase, itemId: event.item_id }];
    }
    if (kind === "response.waiting") {
      this.responseId = event.response_id;
      const { group, place = null, expected_wait_ms: expectedWaitMs = null } = event;
      return [{ type: "waiting", group, place, expectedWaitMs }];
    }
    if (kind === "response.output_item.added") {
      this.#phases.set(event.item.id, event.item.phase ?? null);
    }
    return [{ type: "other", event }];
  }

  #created(response: Response): Event[] {
    const isSame = this.#rejoining !== null && this.#hasBegun;
    this.#rejoining = null;
    if (isSame) {
      this.#received.rejoin();
      this.numRetries = 0;
      return [{ type: "rejoined", response }];
    }
    if (this.#ended) {
      // The successor of a steered response.
      this.#asked = this.#steers.flatMap((steer) => steer.items);
      [this.#after, this.#ended, this.#steers, this.#whole] = [this.#ended, null, [], false];
    }
    this.responseId = response.id;
    [this.#received, this.#hasBegun] = [new Received(), true];
    this.#shown = false;
    this.#phases.clear();
    return [{ type: "started", response }];
  }

  #terminal(fields: any): Event[] {
    const response = new Response(fields, this.#asked, this.#after);
    if (response.status === "failed") {
      const { code, message } = fields.error ?? {};
      this.fail(new LanewiseError(code ?? "server_error", message ?? ""));
      return [];
    }
    // Acceptance comes before the end, or never.
    for (const steer of this.#steers) steer.outcome ??= tooLate();
    const mine = this.#steers.filter((steer) => steer.target === response.id);
    this.#steers = mine.filter((steer) => steer.outcome === true);
    if (this.#steers.length) {
      // Accepted: a successor comes, or why there is none, after a cancel, too.
      this.#ended = response;
      return [];
    }
    this.#finish();
    return [{ type: "done", response }];
  }

  #steered(kind: string, event: any): Event[] {
    const target: string = event.steer.previous_response_id;
    const steer = this.#steers.find((s) => s.outcome === null && s.target === target);
    const remove = () => (this.#steers = this.#steers.filter((s) => s !== steer));
    if (kind === "response.steer.accepted") {
      if (steer) steer.outcome = true;
      if (target !== this.responseId) remove(); // a sub-task's: the response itself goes on
    } else if (kind === "response.steer.failed" && event.steer.id === undefined) {
      if (steer) steer.outcome = errorOf(event);
      remove();
    } else if (this.#ended && target === this.#ended.id) {
      const response = this.#ended;
      this.#ended = null;
      if (kind === "response.steer.pending") {
        this.#finish(); // it waits for the outputs of tool calls
        return [{ type: "done", response }];
      }
      this.fail(errorOf(event));
    }
    return [];
  }

  #refused(error: LanewiseError): Event[] {
    const isGone = this.#rejoining !== null && !ELSEWHERE.has(error.code);
    const isForgotten = error.code === "previous_response_not_found";
    if (this.cancelled && (isGone || isForgotten)) {
      this.fail(cancelled()); // it would be sent again
      return [];
    }
    if (this.#rejoining !== null && isGone) {
      const events = this.#restart(this.#rejoining);
      this.again = { why: error.message, counts: false };
      return events;
    }
    const after = this.#after;
    if (isForgotten && !this.#whole && after instanceof Response && after.context()) {
      this.#whole = true;
      this.again = { why: error.message, counts: false };
      return [];
    }
    if (ELSEWHERE.has(error.code)) return this.lost(error.message, error.retryAfterMs);
    this.fail(error);
    return [];
  }

  #finish(): void {
    this.over = true;
    for (const steer of this.#steers) steer.outcome ??= tooLate();
  }
}

export function asItems(value: Input): Item[] {
  if (typeof value !== "string") return [...value];
  return [{ type: "message", role: "user", content: value }];
}

/** The WebSocket of a gateway given by any of its addresses. */
export function socketUrl(url: string): string {
  const [, scheme, base] = /^(http|ws)(s?:\/\/.+)$/.exec(url) ?? [];
  if (!scheme) throw new TypeError(`expected an http, https, ws or wss URL, got '${url}'`);
  const root = base!.replace(/\/+$/, "").replace(/\/responses$/, "").replace(/\/v1$/, "");
  return `ws${root}/v1/responses`;
}

/** The pause before retry `numRetries` (from 0): doubling, with jitter (`chance` in [0, 1)). */
export function retryDelayMs(numRetries: number, chance: number, retryAfterMs = 0): number {
  const delayMs = Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** numRetries) * (1 - chance / 2);
  return Math.max(delayMs, Math.min(retryAfterMs, MAX_DELAY_MS));
}

export function errorOf(event: any): LanewiseError {
  const { code, message, param, headers = {} } = event.error ?? {};
  const afterMs = Number(headers["retry-after-ms"] ?? headers["retry-after"] * 1000);
  return new LanewiseError(
    code ?? "server_error",
    message ?? "",
    event.status,
    Number.isNaN(afterMs) ? undefined : afterMs,
    param,
  );
}

function lost(why: string): LanewiseError {
  const message = `The sub-task went with the connection (${why}).`;
  return new LanewiseError("response_not_found", message);
}

function cancelled(): LanewiseError {
  return new LanewiseError("response_cancelled", "The response was cancelled.");
}

function tooLate(): LanewiseError {
  const message = "The response has ended. Continue it with create(input, { after: response }).";
  return new LanewiseError("response_already_completed", message);
}
