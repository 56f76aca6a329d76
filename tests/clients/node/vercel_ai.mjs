// The Vercel AI SDK: two tools and a structured answer, at once and streamed.
import assert from "node:assert";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const openai = createOpenAI(); // OPENAI_BASE_URL and OPENAI_API_KEY
const called = [];
const looksUp = (name, description, told) =>
  tool({
    description,
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      called.push(name);
      return told(city);
    },
  });
const task = {
  model: process.argv[2] === "chat" ? openai.chat("auto") : openai("auto"),
  prompt: "Use get_weather and get_population for Lisbon, then report.",
  tools: {
    get_weather: looksUp("get_weather", "Temperature in a city.", (c) => `21 degrees in ${c}.`),
    get_population: looksUp("get_population", "People in a city.", () => "545000 people."),
  },
  output: Output.object({
    schema: z.object({ city: z.string(), degrees: z.int(), people: z.int() }),
  }),
  stopWhen: stepCountIs(6),
};

const whole = await generateText(task);
const calledAtOnce = called.splice(0);
const streamed = streamText(task);
let last;
for await (const partial of streamed.partialOutputStream) last = partial;
assert.deepEqual(called, calledAtOnce);
assert.deepEqual(last, whole.output);
assert.equal(await streamed.finishReason, "stop");
assert((await streamed.totalUsage).outputTokens > 0);
console.log(JSON.stringify({ called: called.toSorted(), report: whole.output }));
