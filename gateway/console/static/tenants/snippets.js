// A key that was just made, in what to paste for each client. It is shown this once.
import { html, useSignal } from "../vendor/preact.js";
import { Copy } from "../shared/copy.js";
import { site } from "../shared/site.js";

// Where admins have an address of their own, the clients' address is another: the reader fills it in.
const base = () => (site.value.api === "/v1" ? location.origin : "https://your-gateway");

const CLIENTS = [
  ["OpenAI SDK", (key) => `from openai import OpenAI

client = OpenAI(base_url="${base()}/v1", api_key="${key}")
print(client.responses.create(model="auto", input="Say hi.").output_text)`],
  ["curl", (key) => `curl ${base()}/v1/responses \\
  -H "Authorization: Bearer ${key}" -H "Content-Type: application/json" \\
  -d '{"model": "auto", "input": "Say hi."}'`],
  ["Codex", (key) => `LANEWISE_API_KEY=${key} codex exec --skip-git-repo-check -m auto -c model_provider=lanewise \\
  -c 'model_providers.lanewise={name="Lanewise", base_url="${base()}/v1", env_key="LANEWISE_API_KEY",
    wire_api="responses", supports_websockets=true}' "say hi"`],
  ["Claude Code", (key) => `ANTHROPIC_BASE_URL=${base()} ANTHROPIC_AUTH_TOKEN=${key} claude`],
  ["TypeScript", (key) => `import { connect } from "lanewise";

const lanewise = await connect({ url: "${base()}", apiKey: "${key}" });
console.log((await lanewise.create("Say hi.")).text);`],
];

export function Snippets({ made, close }) {
  const chosen = useSignal(0);
  const text = CLIENTS[chosen.value][1](made.key);
  const choose = (event) => (chosen.value = Number(event.target.value));
  return html`
    <div class="notice" role="status">
      <p><strong>The new key, shown this once:</strong> <code class="key">${made.key}</code></p>
      <div class="row wrap">
        <label>For <select onChange=${choose}>${CLIENTS.map(([title], index) => html`<option value=${index}>${title}</option>`)}</select></label>
        <${Copy} key=${chosen.value} kind="small" title="Copy" text=${() => text} otherwise="Select it: this page cannot copy" />
        <button class="small plain" onClick=${close}>I have kept it</button>
      </div>
      <pre tabindex="0" aria-label="Snippet">${text}</pre>
    </div>
  `;
}
