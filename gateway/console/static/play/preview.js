// What `auto` would take, and why, as one types: asked of /v1/route, which runs nothing.
import { effect, html, signal, useEffect } from "../vendor/preact.js";
import { tenant } from "../shared/api.js";
import { tenantKey } from "../shared/site.js";
import { prompt } from "./race.js";

const PAUSE_MS = 180; // without a key press, before it is asked
const MAX_CHARS = 20_000; // of the prompt: its beginning decides for this line

const ROUTES = { interactive: "fast" }; // of the class that decides; others are called alike

const preview = signal(null);

async function ask(text) {
  const line = JSON.stringify({ id: "typed", text: text.slice(0, MAX_CHARS) });
  try {
    return JSON.parse(await tenant("POST", "route", `${line}\n`, "application/x-ndjson"));
  } catch (error) {
    return { error: error.message };
  }
}

function follow() {
  let round = 0;
  return effect(() => {
    const text = prompt.value;
    const mine = ++round;
    if (!text.trim() || !tenantKey.value) {
      preview.value = null;
      return undefined;
    }
    const timer = setTimeout(async () => {
      const answer = await ask(text);
      if (mine === round) preview.value = answer;
    }, PAUSE_MS);
    return () => clearTimeout(timer);
  });
}

export function Preview() {
  useEffect(follow, []);
  const told = preview.value;
  if (!told) return html`<p class="preview quiet">Type, and see where <code>auto</code> would send it.</p>`;
  if (told.error) return html`<p class="preview quiet" role="status">${told.error}</p>`;
  const route = ROUTES[told.lane] ?? told.lane;
  return html`
    <p class="preview line" role="status">
      <span class="quiet">auto would take</span>
      <span class=${`tag ${route}`}>${route}</span>
      <span>p(deep) ${told.p_deep.toFixed(2)}</span>
      ${told.security && html`<span class="tag warn">security</span>`}
      <span class="quiet">by ${told.reason}${told.signals?.length ? `: ${told.signals.join(", ")}` : ""}</span>
    </p>
  `;
}
