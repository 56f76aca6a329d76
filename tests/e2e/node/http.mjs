// openai-node over HTTP: JSON, SSE, chat completions, functions, models, typed errors.
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const told = {};

const first = await client.responses.create({ model: "auto", input: "The code word is beryl-5." });
told.routing = first.routing;
const second = await client.responses.create({
  model: "auto",
  input: "What is the code word?",
  previous_response_id: first.id,
});
told.chained = second.output_text;

told.kinds = [];
const stream = await client.responses.create({ model: "auto", input: "Say hello.", stream: true });
for await (const event of stream) told.kinds.push(event.type);

const helper = client.responses.stream({ model: "lanewise-fast", input: "Explain recursion." });
told.streamed = "";
helper.on("response.output_text.delta", (event) => (told.streamed += event.delta));
told.final = (await helper.finalResponse()).output_text;

const messages = [{ role: "user", content: "The code word is beryl-5. What is the code word?" }];
const chat = await client.chat.completions.create({ model: "auto", messages });
told.chat = chat.choices[0].message.content;
told.chatChunks = 0;
for await (const chunk of await client.chat.completions.create({
  model: "auto",
  messages,
  stream: true,
})) {
  told.chatChunks += chunk.choices.length;
}

const properties = { a: { type: "integer" }, b: { type: "integer" } };
const parameters = { type: "object", properties, required: ["a", "b"] };
const tools = [{ type: "function", name: "add", parameters, strict: false }];
const called = await client.responses.create({
  model: "lanewise-fast",
  input: "What is 2 + 3?",
  tools,
  tool_choice: "required",
});
const call = called.output.find((item) => item.type === "function_call");
told.arguments = call.arguments;
const answered = await client.responses.create({
  model: "lanewise-fast",
  previous_response_id: called.id,
  tools,
  input: [{ type: "function_call_output", call_id: call.call_id, output: "it is 5" }],
});
told.withOutput = answered.output_text;

told.models = [];
for await (const model of client.models.list()) told.models.push(model.id);

const statusOf = async (promise) => {
  try {
    await promise;
  } catch (error) {
    return error.status;
  }
};
told.errors = {
  missing: await statusOf(client.responses.create({ model: "gpt-0", input: "x" })),
  bad: await statusOf(client.responses.create({ model: "auto", input: 7 })),
  key: await statusOf(new OpenAI({ apiKey: "sk-wrong", maxRetries: 0 }).models.list()),
};
console.log(JSON.stringify(told));
