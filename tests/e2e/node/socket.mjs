// openai-node over its WebSocket: chaining, streams, errors, steering.
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";

const ws = new ResponsesWS(new OpenAI());
const events = ws[Symbol.asyncIterator]();
const told = {};

const create = (body) => ws.send({ type: "response.create", model: "lanewise-fast", ...body });

// The next protocol event; an `error` event comes as one too.
const next = async () => {
  for (;;) {
    const { value } = await events.next();
    if (value.type === "message") return value.message;
    if (value.type === "error") return { type: "error", error: value.error };
  }
};

const terminals = ["response.completed", "response.incomplete", "response.failed"];

const terminal = async () => {
  for (;;) {
    const event = await next();
    if (event.type === "error") throw event.error;
    if (terminals.includes(event.type)) return event;
  }
};

const textOf = (response) =>
  response.output.flatMap((item) => item.content ?? []).map((part) => part.text).join("");

create({ input: "The code word is beryl-5.", store: false });
const first = (await terminal()).response;
create({ input: "What is the code word?", previous_response_id: first.id, store: false });
told.chained = textOf((await terminal()).response);

create({ input: "Hi.", stream_id: "a" });
create({ input: "Hi.", stream_id: "b" });
told.streams = [(await terminal()).stream_id, (await terminal()).stream_id].sort();

create({ input: "Hi.", model: "gpt-0" });
const error = await next();
told.error = error.error.message;

create({ input: "Write a very long book.", model: "lanewise-deep", max_output_tokens: 4000 });
let created = await next();
while (created.type !== "response.created") created = await next();
ws.send({
  type: "response.steer",
  previous_response_id: created.response.id,
  input: "The code word is beryl-5. What is the code word?",
});
await terminal();
told.steered = textOf((await terminal()).response);

ws.close();
console.log(JSON.stringify(told));
