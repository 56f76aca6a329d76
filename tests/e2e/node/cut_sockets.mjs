// openai-node's WebSockets as a Python test drives them: a JSON object a line, both ways.
// In: {wire, port} opens one, {wire, create} sends, {wire, close} closes.
// Out: {wire, opened}, {wire, event}, and at its end {wire, lost}.
import { createInterface } from "node:readline";
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";

const wires = new Map();
const tell = (about) => process.stdout.write(`${JSON.stringify(about)}\n`);

const open = async (wire, port) => {
  const client = new OpenAI({ baseURL: `http://127.0.0.1:${port}/v1`, maxRetries: 0 });
  const ws = new ResponsesWS(client);
  wires.set(wire, ws);
  for await (const each of ws) {
    if (each.type === "open") tell({ wire, opened: true });
    if (each.type === "message") tell({ wire, event: each.message });
    if (each.type === "error" && each.error.error?.error) tell({ wire, event: each.error.error });
    if (each.type === "close") break;
  }
};

for await (const line of createInterface({ input: process.stdin })) {
  const { wire, port, create, close } = JSON.parse(line);
  if (port) {
    open(wire, port)
      .catch(() => {})
      .finally(() => {
        wires.delete(wire);
        tell({ wire, lost: true });
      });
  }
  if (create) wires.get(wire)?.send({ type: "response.create", ...create });
  if (close) wires.get(wire)?.close();
}
