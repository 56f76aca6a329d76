/** The sockets: any number of turns at once on one of them, and conversations that outlive it. */

import {
  ELSEWHERE,
  LanewiseError,
  Turn,
  errorOf,
  retryDelayMs,
  socketUrl,
  type Event,
  type Fields,
  type Input,
  type Response,
} from "./turn.js";

const DEFAULT_URL = "http://127.0.0.1:8080";
const MAX_STREAMS = 32; // named streams per connection, docs/protocol.md
const MAX_AGE_MS = 55 * 60_000; // then new turns open another: servers close theirs after 60 minutes
const OPEN_TIMEOUT_MS = 10_000;
const NAMING = new Set(["response.waiting", "response.created"]); // a turn's id comes in one of them
const IN_NODE = typeof process !== "undefined" && process.versions?.node !== undefined;

export interface ConnectOptions {
  /** Any address: http, https, ws or wss, with or without `/v1`. By default `$LANEWISE_URL`. */
  url?: string;
  /** By default `$LANEWISE_API_KEY`. */
  apiKey?: string;
  /**
   * Instead of a key, for pages: resolves to a ticket of `POST /v1/socket_tickets`, which the
   * page's own server asked for. Called once for each socket.
   */
  ticket?: () => Promise<string>;
  /** How often a turn is sent again after a lost connection, with growing pauses. */
  maxRetries?: number;
}

/** Hints, and besides them any field of `response.create` (`model`, `tools`, ...). */
export interface CreateOptions {
  /** What this continues. A `Response` survives a gateway that forgot it; an id alone does not. */
  after?: Response | string;
  route?: "fast" | "deep" | "parallel";
  strategy?: "hedge" | "verify" | "draft" | "breadth" | "delegate" | "advise";
  deadlineMs?: number;
  /** Aborting cancels the response, and rejects with the signal's reason. */
  signal?: AbortSignal;
  metadata?: Record<string, string>;
  [field: string]: unknown;
}

/** Opens a socket; rejects with a LanewiseError if nobody answers or the key is refused. */
export async function connect(options: ConnectOptions = {}): Promise<Client> {
  const environ: Record<string, string | undefined> = IN_NODE ? process.env : {};
  const key = options.apiKey ?? environ.LANEWISE_API_KEY ?? "";
  if (!key && !options.ticket) {
    throw new TypeError("expected an API key: pass apiKey or ticket, or set LANEWISE_API_KEY");
  }
  const url = socketUrl(options.url ?? environ.LANEWISE_URL ?? DEFAULT_URL);
  const client = new Client(url, key, options.maxRetries ?? 5, options.ticket);
  await client.open();
  return client;
}

export class Client {
  #socket: Socket | null = null; // the one that takes new turns
  #opening: Promise<Socket> | null = null;
  #sockets = new Set<Socket>(); // with those on which turns still end
  #numBusy = 0;
  #queue: (() => void)[] = []; // turns that wait for a stream
  #closed = false;

  constructor(
    private readonly url: string,
    private readonly key: string,
    private readonly maxRetries: number,
    private readonly ticket?: () => Promise<string>,
  ) {}

  /** Ask, and wait for the whole answer. */
  async create(input: Input, options: CreateOptions = {}): Promise<Response> {
    return this.stream(input, options).response();
  }

  /** As `create`, but event by event; sent when it is first read. */
  stream(input: Input, options: CreateOptions = {}): Stream {
    const { after, route, strategy, deadlineMs, signal, metadata, ...fields } = options;
    const hints = Object.entries({ route, strategy, deadline_ms: deadlineMs })
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => [name, String(value)]);
    const sent: Fields = { model: "auto", ...fields };
    if (hints.length || metadata) sent.metadata = { ...Object.fromEntries(hints), ...metadata };
    return new Stream(this, new Turn(sent, input, after), signal);
  }

  /** Close every socket; the gateway stops what still runs on them. */
  close(): void {
    this.#closed = true;
    for (const socket of this.#sockets) socket.close();
  }

  /** @internal */
  async start(stream: Stream): Promise<void> {
    const { turn } = stream;
    while (stream.socket === null && !turn.over) {
      if (turn.again?.counts) {
        if (turn.numRetries >= this.maxRetries) {
          const tried = `${turn.again.why} Gave up after ${turn.numRetries} retries.`;
          turn.fail(new LanewiseError("connection_lost", tried));
          return;
        }
        const ms = retryDelayMs(turn.numRetries++, Math.random(), turn.again.retryAfterMs);
        await new Promise((resolve) => setTimeout(resolve, ms));
      }
      if (this.#numBusy < MAX_STREAMS) this.#numBusy++;
      else await new Promise<void>((resolve) => this.#queue.push(resolve));
      try {
        const socket = await this.open();
        if (turn.over) this.freeSlot(); // it was cancelled while it waited
        else socket.begin(stream);
      } catch (error) {
        this.freeSlot();
        if (!(error instanceof LanewiseError) || error.code !== "connection_failed") throw error;
        stream.lose(error.message);
      }
    }
  }

  /** @internal The socket that takes new turns. */
  async open(): Promise<Socket> {
    if (this.#closed) throw new LanewiseError("client_closed", "This client is closed.");
    const current = this.#socket;
    if (current && current.openedMs + MAX_AGE_MS > Date.now()) return current;
    this.#opening ??= this.#connect().finally(() => (this.#opening = null));
    return this.#opening;
  }

  async #connect(): Promise<Socket> {
    const webSocket = new WebSocket(this.url, await this.#credential());
    const opened = await new Promise<boolean>((resolve) => {
      const timer = setTimeout(() => resolve(false), OPEN_TIMEOUT_MS);
      const settle = (outcome: boolean) => (clearTimeout(timer), resolve(outcome));
      webSocket.onopen = () => settle(true);
      webSocket.onerror = () => settle(false);
    });
    if (!opened) {
      webSocket.close();
      throw await this.#whyNot();
    }
    this.#socket?.retire();
    const socket = new Socket(this, webSocket);
    this.#socket = socket;
    this.#sockets.add(socket);
    if (this.#closed) socket.close();
    return socket;
  }

  /** Node's WebSocket sends headers; a browser's only names of subprotocols: there, a ticket. */
  async #credential(): Promise<any> {
    if (IN_NODE && !this.ticket) return { headers: this.#headers() };
    const ticket = this.ticket ? await this.ticket() : await this.#askForTicket();
    return ["lanewise", `lanewise-ticket.${ticket}`];
  }

  async #askForTicket(): Promise<string> {
    const answer = await this.#fetch("socket_tickets", "POST");
    if (!answer) throw this.#unreachable();
    if (!answer.ok) throw errorOf({ ...answer.body, status: answer.status });
    return answer.body.ticket;
  }

  /** A WebSocket does not tell why it was refused; the same key over HTTP does. */
  async #whyNot(): Promise<LanewiseError> {
    const answer = this.key ? await this.#fetch("models", "GET") : null;
    if (answer && (answer.status === 401 || answer.status === 403)) {
      return errorOf({ ...answer.body, status: answer.status });
    }
    return this.#unreachable();
  }

  /** Null if nobody is there, or nobody who speaks JSON. */
  async #fetch(path: string, method: string) {
    const address = this.url.replace(/^ws/, "http").replace(/responses$/, path);
    const signal = AbortSignal.timeout(OPEN_TIMEOUT_MS);
    try {
      const answer = await fetch(address, { method, headers: this.#headers(), signal });
      return { ok: answer.ok, status: answer.status, body: (await answer.json()) as any };
    } catch {
      return null;
    }
  }

  #headers(): Record<string, string> {
    return { authorization: `Bearer ${this.key}` };
  }

  #unreachable(): LanewiseError {
    return new LanewiseError("connection_failed", `No gateway at ${this.url}.`);
  }

  /** @internal New turns go elsewhere. */
  left(socket: Socket): void {
    if (this.#socket === socket) this.#socket = null;
  }

  /** @internal */
  gone(socket: Socket): void {
    this.left(socket);
    this.#sockets.delete(socket);
  }

  /** @internal A turn has left its socket. */
  freeSlot(): void {
    const next = this.#queue.shift();
    if (next) next();
    else this.#numBusy--;
  }
}

class Socket {
  readonly openedMs = Date.now();
  #streams = new Map<string, Stream>();
  #retired = false;
  #closed = false;
  #why: LanewiseError | null = null;

  constructor(
    private readonly client: Client,
    private readonly webSocket: WebSocket,
  ) {
    webSocket.onmessage = ({ data }) => {
      try {
        this.#receive(JSON.parse(String(data)));
      } catch {
        this.close(); // not JSON: no use in reading on
      }
    };
    webSocket.onerror = () => {}; // a close follows
    webSocket.onclose = () => this.#lose();
  }

  begin(stream: Stream): void {
    let number = 0;
    while (this.#streams.has(`s${number}`)) number++;
    this.#streams.set(`s${number}`, stream);
    stream.socket = this;
    stream.name = `s${number}`;
    this.send(stream.turn.frame(`s${number}`));
    if (this.#closed) this.#lose();
  }

  send(frame: Fields): void {
    if (this.webSocket.readyState === WebSocket.OPEN) this.webSocket.send(JSON.stringify(frame));
  }

  /** Take nothing new, and close when the last turn is over. */
  retire(): void {
    this.#retired = true;
    this.client.left(this);
    if (this.#streams.size === 0) this.close();
  }

  close(): void {
    this.webSocket.close();
  }

  #receive(event: any): void {
    const stream = this.#streams.get(event.stream_id);
    const code: string | undefined = event.type === "error" ? event.error?.code : undefined;
    if (event.stream_id === undefined) {
      if (code !== undefined && code !== "response_not_found") this.#why = errorOf(event);
      return; // of the connection: it closes next
    }
    if (!stream) return;
    stream.receive(event);
    const { turn } = stream;
    if (turn.over || turn.again) this.#drop(event.stream_id, stream);
    else if (turn.cancelled && NAMING.has(event.type)) stream.cancel(); // one before named another
    if (code !== undefined && ELSEWHERE.has(code)) this.retire();
    else if (this.#retired && this.#streams.size === 0) this.close();
  }

  #lose(): void {
    this.#closed = true;
    this.client.gone(this);
    const why = this.#why;
    for (const [name, stream] of [...this.#streams]) {
      if (why && !ELSEWHERE.has(why.code)) stream.turn.fail(why);
      this.#drop(name, stream);
      stream.lose(why?.message ?? "The connection was lost.");
    }
  }

  #drop(name: string, stream: Stream): void {
    this.#streams.delete(name);
    stream.socket = null;
    this.client.freeSlot();
  }
}

/** One turn, event by event. Leaving `for await` early cancels it. */
export class Stream implements AsyncIterable<Event> {
  /** @internal */ socket: Socket | null = null;
  /** @internal */ name = ""; // its `stream_id`, while it is on a socket
  #events: Event[] = []; // text gathers, so it holds an answer at most
  #waiters: (() => void)[] = [];
  #starting: Promise<void> | null = null;

  constructor(
    private readonly client: Client,
    /** @internal */ readonly turn: Turn,
    private readonly signal?: AbortSignal,
  ) {
    if (signal?.aborted) this.cancel();
    else signal?.addEventListener("abort", () => this.cancel(), { once: true });
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Event, void> {
    try {
      for (;;) {
        const event = this.#events.shift();
        if (event) yield event;
        else if (this.turn.error) throw this.signal?.aborted ? this.signal.reason : this.turn.error;
        else if (this.turn.over) return;
        else await this.#progress();
      }
    } finally {
      this.cancel();
    }
  }

  /** The whole answer; passes over the events that were not read. */
  async response(): Promise<Response> {
    for await (const event of this) {
      if (event.type === "done" && !this.signal?.aborted) return event.response;
    }
    this.signal?.throwIfAborted();
    throw new LanewiseError("stream_consumed", "The answer of this stream was read already.");
  }

  /** Redirect the answer, or a sub-task of it; resolves once the gateway has accepted it. */
  async steer(input: Input, subtask?: string): Promise<void> {
    while (!this.turn.takesSteers && !this.turn.over) await this.#progress();
    const steer = this.turn.steer(subtask ?? this.turn.responseId ?? "", input);
    const frame = { type: "response.steer", previous_response_id: steer.target, input };
    if (steer.outcome === null) this.socket?.send(frame);
    while (steer.outcome === null) await this.#change();
    if (steer.outcome instanceof LanewiseError) throw steer.outcome;
  }

  /** Stop the answer, or one sub-task of it. The last event tells how far it came. */
  cancel(subtask?: string): void {
    if (this.turn.over) return;
    if (subtask === undefined) this.turn.cancelled = true;
    const id = subtask ?? this.turn.responseId;
    const which = id === null ? { stream_id: this.name } : { response_id: id };
    if (this.socket) this.socket.send({ type: "response.cancel", ...which });
    else this.lose("cancelled");
  }

  /** @internal */
  receive(event: any): void {
    for (const told of this.turn.receive(event)) {
      const last = this.#events.at(-1);
      const gathers = told.type === "text" && last?.type === "text" && told.itemId === last.itemId;
      if (gathers) last.text += told.text;
      else this.#events.push(told);
    }
    this.#wake();
  }

  /** @internal */
  lose(why: string): void {
    this.#events.push(...this.turn.lost(why));
    this.#wake();
  }

  async #progress(): Promise<void> {
    if (this.socket) return this.#change();
    this.#starting ??= this.client.start(this).finally(() => (this.#starting = null));
    return this.#starting;
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#waiters.push(resolve));
  }

  #wake(): void {
    for (const resolve of this.#waiters.splice(0)) resolve();
  }
}
