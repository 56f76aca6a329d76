// Our TypeScript client, through a relay that cuts its connections in the middle of an answer.
import net from "node:net";
import { connect, LanewiseError, Response } from "../../../sdk/typescript/dist/index.js";

const told = {};
const gateway = new URL(process.env.OPENAI_BASE_URL);
const apiKey = process.env.OPENAI_API_KEY;
const links = new Set();
let numLinks = 0;
const relay = net.createServer((near) => {
  numLinks++;
  const far = net.connect(gateway.port, gateway.hostname);
  for (const [one, other] of [[near, far], [far, near]]) {
    links.add(one);
    one.pipe(other);
    one.on("error", () => {});
    one.on("close", () => (links.delete(one), other.destroy()));
  }
});
await new Promise((resolve) => relay.listen(0, "127.0.0.1", resolve));
const url = `http://127.0.0.1:${relay.address().port}`;
const client = await connect({ url, apiKey });
const long = { model: "lanewise-deep", max_output_tokens: 4000 };

const first = await client.create("The code word is beryl-5.", { route: "fast", deadlineMs: 60000 });
told.routing = first.routing;
told.chained = (await client.create("What is the code word?", { after: first })).text;

const texts = await Promise.all(
  ["ants", "bees"].map(async (subject) => {
    let text = "";
    let final = "";
    for await (const event of client.stream(`Describe ${subject}.`, { model: "lanewise-fast" })) {
      if (event.type === "text") text += event.text;
      if (event.type === "done") final = event.response.text;
    }
    return [text, final];
  }),
);
told.parallel = texts;
const many = Array.from({ length: 40 }, (_, n) =>
  client.create(`Count to ${n}.`, { model: "lanewise-fast" }),
);
told.many = new Set((await Promise.all(many)).map((response) => response.id)).size;

const steered = client.stream("Write a very long book.", long);
const answer = steered.response();
await steered.steer("The code word is ruby-6. What is the code word?");
told.steered = (await answer).text;
told.steeredAfter = (await answer).after instanceof Response;

const codeOf = (promise) => promise.then(() => null, (error) => error.code ?? error.name);
told.late = await codeOf(steered.steer("More."));

const stopped = client.stream("Write a very long book.", long);
for await (const event of stopped) {
  if (event.type === "text") stopped.cancel();
  if (event.type === "done") told.cancelled = event.response.incompleteReason;
}
const both = client.stream("Write a very long book.", long);
const last = both.response();
while (both.turn.responseId === null) await new Promise((resolve) => setTimeout(resolve, 5));
const steering = codeOf(both.steer("The code word is onyx-7."));
both.cancel();
told.steeredAndCancelled = [await steering, await codeOf(both.steer("More.")), (await last).status];
told.following = (await client.create("Say hello.")).previousResponseId;
const held = Array.from({ length: 32 }, () => client.stream("Write a very long book.", long));
const ends = held.map((stream) => codeOf(stream.response()));
const waiting = client.stream("Write a very long book.", long); // all streams of the socket are taken
const unsent = codeOf(waiting.response());
await new Promise((resolve) => setTimeout(resolve, 100));
for (const stream of [waiting, ...held]) stream.cancel();
told.unsent = await unsent;
await Promise.all(ends);
const words = held.map((_, n) => `opal-${100 + n}`);
const asks = words.map((word) => client.create(`The code word is ${word}. What is the code word?`));
told.own = (await Promise.all(asks)).every(({ text }, n) => text.includes(words[n]));
const signal = AbortSignal.timeout(300);
told.aborted = await codeOf(client.create("Write a very long book.", { ...long, signal }));

let local = await client.create("The code word is onyx-1.", { store: false });
local = await client.create("And the number is 41.", { after: local, store: false });
told.kinds = [];
let [said, final] = ["", ""];
for await (const event of client.stream("Write a book.", { ...long, max_output_tokens: 200 })) {
  if (event.type === "text") said += event.text;
  if (event.type === "text" && !told.kinds.includes("text")) {
    for (const link of links) link.destroy();
  }
  if (event.type === "done") final = event.response.text;
  if (told.kinds.at(-1) !== event.type && event.type !== "other") told.kinds.push(event.type);
}
told.whole = said === final && said !== "";
told.numLinks = numLinks;
const recovered = await client.create("What is the code word?", { after: local });
told.recovered = recovered.text;

told.errors = {
  model: await codeOf(client.create("Hi.", { model: "gpt-0" })),
  parent: await codeOf(client.create("Hi.", { after: "resp_no" })),
  key: await codeOf(connect({ url, apiKey: "sk-wrong" })),
  nobody: await codeOf(connect({ url: "http://127.0.0.1:1", apiKey })),
};
told.typed = await client.create("Hi.", { model: "gpt-0" }).catch((e) => e instanceof LanewiseError);
client.close();
told.closed = await codeOf(client.create("Hi."));
relay.close();
for (const link of links) link.destroy();

const sockets = [];
globalThis.WebSocket = class {
  static OPEN = 1;
  readyState = 1;
  sent = [];
  constructor() {
    sockets.push(this);
    queueMicrotask(() => this.onopen());
  }
  send(frame) {
    this.sent.push(JSON.parse(frame));
  }
};
const early = (await connect({ url, apiKey })).stream("Hi.");
early.response();
const [socket] = sockets;
while (!socket.sent.length) await new Promise((resolve) => setTimeout(resolve, 1));
early.cancel(); // it has no id yet
const queued = { type: "response.waiting", stream_id: "s0", response_id: "resp_1", group: "fast" };
socket.onmessage({ data: JSON.stringify(queued) });
told.early = socket.sent.map(({ type, ...named }) => [type, named.stream_id, named.response_id]);
console.log(JSON.stringify(told));
