// The official TypeScript SDK, unchanged but for its address: a task with two tools, and errors.
import assert from "node:assert";
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ maxRetries: 0 }); // ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY
const add = {
  name: "add",
  description: "Adds two numbers.",
  input_schema: {
    type: "object",
    properties: { a: { type: "integer" }, b: { type: "integer" } },
    required: ["a", "b"],
  },
};

const told = {};
for (const model of ["claude-lanewise-fast", "claude-lanewise-deep", "claude-opus-5-5"]) {
  const messages = [{ role: "user", content: "Use the add tool on 17 and 25." }];
  const stream = client.messages.stream({
    model,
    max_tokens: 2000,
    messages,
    tools: [add],
    thinking: { type: "adaptive" },
  });
  const partials = [];
  stream.on("inputJson", (partial) => partials.push(partial));
  const first = await stream.finalMessage();
  assert.equal(first.stop_reason, "tool_use");
  const call = first.content.find((block) => block.type === "tool_use");
  assert.deepEqual(JSON.parse(partials.join("")), call.input);
  messages.push({ role: "assistant", content: first.content });
  messages.push({
    role: "user",
    content: [{ type: "tool_result", tool_use_id: call.id, content: "42" }],
  });
  const last = await client.messages.create({ model, max_tokens: 2000, messages, tools: [add] });
  assert.equal(last.stop_reason, "end_turn");
  told[model] = last.content.find((block) => block.type === "text").text;
}

const messages = [{ role: "user", content: "Hi." }];
await assert.rejects(
  () => client.messages.create({ model: "nope", max_tokens: 9, messages }),
  Anthropic.NotFoundError,
);
const counted = await client.messages.countTokens({ model: "claude-opus-5-5", messages });
assert.ok(counted.input_tokens > 0);
const ids = [];
for await (const model of client.models.list({ limit: 2 })) ids.push(model.id);
assert.ok(ids.includes("claude-lanewise-auto"));
console.log(JSON.stringify(told));
