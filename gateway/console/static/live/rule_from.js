// A rule, as TOML, that would take tasks like a recorded one.
export function ruleFrom(record) {
  const when = [];
  if (record.kind) when.push(`kinds = ${JSON.stringify([record.kind])}`);
  if (record.label) when.push(`labels = ${JSON.stringify([record.label])}`);
  if (record.ask_tokens > 0) when.push(`ask_tokens_below = ${2 * record.ask_tokens}`);
  const route = record.route ?? "deep";
  return [
    "[[rules]]",
    `name = "like-${record.id.slice(-6)}"`,
    `when = { ${when.join(", ")} }`,
    `route = "${route}"`,
    ...(record.strategy ? [`strategy = "${record.strategy}"`] : []),
  ].join("\n");
}
