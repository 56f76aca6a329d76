// What can race: each lane asks the same prompt with other hints.
export const LANES = [
  { name: "fast", title: "Fast", words: "The fast engine alone.", options: { route: "fast" } },
  { name: "deep", title: "Deep", words: "The deep engine alone.", options: { route: "deep" } },
  { name: "auto", title: "Auto", words: "The router decides.", options: {} },
  ...[
    ["hedge", "Deep first; fast joins when deep is late."],
    ["verify", "Fast answers, checked before one is shown."],
    ["draft", "Fast drafts, and deep checks it in blocks."],
    ["breadth", "Several variations, judged by deep."],
    ["delegate", "Fast holds the conversation, deep does the hard part."],
    ["advise", "Fast answers, and may ask deep for a plan."],
  ].map(([name, words]) => ({
    name,
    title: name[0].toUpperCase() + name.slice(1),
    words,
    options: { route: "parallel", strategy: name },
  })),
];

export const DEFAULT_LANES = ["fast", "deep"];
export const MAX_LANES = 4; // side by side they stay legible

/** One request whose `num` answers are all shown: a grid of them. */
export const variations = (num) => ({
  name: "variations",
  title: `${num} variations`,
  words: "One request; the fast engine answers it several times, each apart from the others.",
  options: { route: "parallel", strategy: "breadth", metadata: { n: String(num), judge: "false" } },
});

export const DEMO = {
  prompt: "Write a Python program of 300 lines that parses logs.",
  lanes: ["fast", "deep"],
};
