// The Vercel AI SDK: a tool, and a structured answer that streams.
const needed = ["ai", "@ai-sdk/openai", "zod"].map((name) => import(name));
const [{ Output, stepCountIs, streamText, tool }, { createOpenAI }, { z }] = await Promise.all(
  needed,
).catch((missing) => {
  console.error(`${missing.message}\n\`make example NAME=vercel_ai\` brings it.`);
  process.exit(1);
});

const lanewise = createOpenAI({
  baseURL: process.env.OPENAI_BASE_URL ?? "http://127.0.0.1:8080/v1",
  apiKey: process.env.OPENAI_API_KEY ?? "sk-lanewise-dev",
});
const answer = streamText({
  model: lanewise("auto"), // the Responses API; lanewise.chat("auto") is chat completions
  prompt: "Use get_weather for Lisbon, then report.",
  tools: {
    get_weather: tool({
      description: "Temperature in a city, in degrees Celsius.",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => `It is 21 degrees in ${city}.`,
    }),
  },
  output: Output.object({ schema: z.object({ city: z.string(), degrees: z.int() }) }),
  stopWhen: stepCountIs(5),
});
for await (const partial of answer.partialOutputStream) console.log(partial);
console.log(await answer.totalUsage);
