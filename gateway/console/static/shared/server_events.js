// Reads server-sent events by fetch, since an EventSource cannot send a key.
import { ApiError, notOurs } from "./api.js";

const MAX_BUFFERED_CHARS = 8 << 20; // of one event: more is no event of ours

/** Yields { name, data } until the server or `signal` ends it; throws if nobody answers. */
export async function* serverEvents(path, key, signal) {
  const answer = await fetch(path, { headers: { authorization: `Bearer ${key}` }, signal });
  if (!answer.ok) {
    const { error } = await answer.json().catch(() => ({}));
    throw new ApiError(error?.message ?? notOurs(answer.status), answer.status);
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffered = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done || buffered.length > MAX_BUFFERED_CHARS) return;
    buffered += value;
    const whole = buffered.split("\n\n");
    buffered = whole.pop();
    for (const text of whole) {
      const [, name = "message"] = /^event: (.*)$/m.exec(text) ?? [];
      const [, data] = /^data: (.*)$/m.exec(text) ?? [];
      if (data !== undefined) yield { name, data: JSON.parse(data) };
    }
  }
}
