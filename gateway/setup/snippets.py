"""Writes what five clients need to use a gateway, ready to be copied."""


def snippets(base_url: str, key: str) -> dict[str, str]:
    """Returns the text for each client; `base_url` ends before `/v1`."""
    return {
        "curl": f"""\
curl -sN {base_url}/v1/responses \\
  -H "authorization: Bearer {key}" -H "content-type: application/json" \\
  -d '{{"model": "auto", "input": "Say hi.", "stream": true}}'
""",
        "openai-python": f"""\
from openai import OpenAI

client = OpenAI(base_url="{base_url}/v1", api_key="{key}")
print(client.responses.create(model="auto", input="Say hi.").output_text)
""",
        "openai-node": f"""\
import OpenAI from "openai";

const client = new OpenAI({{ baseURL: "{base_url}/v1", apiKey: "{key}" }});
console.log((await client.responses.create({{ model: "auto", input: "Say hi." }})).output_text);
""",
        "codex": f"""\
# ~/.codex/config.toml; then: LANEWISE_API_KEY={key} codex
model = "auto"
model_provider = "lanewise"

[model_providers.lanewise]
name = "Lanewise"
base_url = "{base_url}/v1"
model_catalog_url = "{base_url}/v1/models"
wire_api = "responses"
env_key = "LANEWISE_API_KEY"
supports_websockets = true
""",
        "claude-code": f"""\
export ANTHROPIC_BASE_URL={base_url} ANTHROPIC_AUTH_TOKEN={key}
claude
""",
    }
