"""Says what becomes of each field of a Messages request: the table of docs/messages.md.

A test holds it to the types of Anthropic's SDK, betas included: a new field there fails it.
"""

from gateway.wire.fields import Field

MESSAGE_FIELDS = (
    Field("billing_policy", "ignored", "nobody is billed by it here"),
    Field("cache_control", "ignored", "engines keep prefixes by themselves"),
    Field("compaction", "refused", "a client here compacts by itself: leave it out"),
    Field("container", "refused", "no code runs here: leave it out"),
    Field("context_management", "ignored", "nothing is cut from the context"),
    Field("diagnostics", "ignored", "there are none"),
    Field("fallback_credit_token", "ignored", "there are no credits"),
    Field("fallbacks", "ignored", "the policy has them"),
    Field("inference_geo", "ignored", "engines are where the operator has them"),
    Field("max_tokens", "done", "bounds the output, thinking included; 0 warms up the context"),
    Field("mcp_servers", "refused", "no tools are hosted here: leave it out"),
    Field("messages", "done", "all blocks but those of Anthropic's own tools; no prefill"),
    Field("metadata", "done", "a session in `user_id` names the conversation; others are hints"),
    Field("model", "done", "see the names below"),
    Field("output_config", "done", "`effort`, and `format` by a JSON schema"),
    Field("service_tier", "ignored", "the policy decides what goes first"),
    Field("speed", "done", "`fast` is a hint for the router"),
    Field("stop_sequences", "done", "texts that end the answer"),
    Field("stream", "done", "events, or one message"),
    Field("system", "done", "the prompt begins with it; Claude Code's attribution is left out"),
    Field("thinking", "done", "whether there are thinking blocks, and how hard to think"),
    Field("thread", "refused", "nothing is kept here: send all messages, as the SDK then does"),
    Field("tool_choice", "done", "all forms"),
    Field("tools", "done", "the client's own; Anthropic's dated ones are refused"),
    Field("user_profile_id", "ignored", "a key is a tenant's"),
    Field("workspace_id", "ignored", "a key is a tenant's"),
    Field("output_format", "done", "the former name of `output_config.format`", True),
    Field("temperature", "passed on", "of the version 2023-06-01", True),
    Field("top_p", "passed on", "of the version 2023-06-01", True),
    Field("top_k", "ignored", "no engine's protocol here has it", True),
)

REFUSED = {field.name: field.says for field in MESSAGE_FIELDS if field.fate == "refused"}
