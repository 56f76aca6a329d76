"""Tests agent frameworks, unchanged but for address and key: two tools and a structured answer."""

from pathlib import Path

import pytest

from tests.e2e.gateway_process import GatewayProcess
from tests.e2e.node_bin import node_bin
from tests.e2e.programs import last_line, run_program

FOLDER = Path(__file__).parent / "agents"
# Each with the transports that it has; of these, openai-agents alone has the socket.
TRANSPORTS = {
    "langchain": ("responses", "chat"),
    "langgraph": ("responses", "chat"),
    "openai_agents": ("responses", "chat", "socket"),
    "pydantic_ai": ("responses", "chat"),
    "smolagents": ("chat",),
}
DONE = {
    "called": ["get_population", "get_weather"],
    "report": {"city": "Lisbon", "degrees": 21, "people": 545_000},
}
QUIET = {"LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1"}


@pytest.mark.parametrize(
    ("client", "transport"),
    [(client, each) for client, several in TRANSPORTS.items() for each in several],
)
def test_two_tools_and_a_structured_answer(
    gateway: GatewayProcess, agents: Path, client: str, transport: str
) -> None:
    script = FOLDER / f"with_{client}.py"
    told = last_line(run_program(agents, script, transport, gateway=gateway, environ=QUIET))
    assert told == DONE


@pytest.mark.parametrize("transport", ["responses", "chat"])
def test_the_vercel_ai_sdk(gateway: GatewayProcess, node_modules: Path, transport: str) -> None:
    script = node_modules.parent / "vercel_ai.mjs"
    assert last_line(run_program(node_bin() / "node", script, transport, gateway=gateway)) == DONE
