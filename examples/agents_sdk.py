"""Runs an agent with a tool on the OpenAI Agents SDK, by WebSocket (pip install openai-agents)."""

import asyncio
import os
import sys

try:
    from agents import Agent, OpenAIResponsesWSModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: `make example NAME=agents_sdk` brings it.")

set_tracing_disabled(True)


@function_tool
def line_count(path: str) -> str:
    """Number of lines of a file."""
    return f"{path} has 120 lines."


async def main() -> None:
    client = AsyncOpenAI(
        base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
        api_key=os.environ.get("OPENAI_API_KEY", "sk-lanewise-dev"),
    )
    model = OpenAIResponsesWSModel(model="auto", openai_client=client)
    agent = Agent(name="Reader", instructions="Use your tools.", tools=[line_count], model=model)
    result = await Runner.run(agent, "Call line_count for main.py and tell me the answer.")
    print(result.final_output)
    await model.close()


asyncio.run(main())
