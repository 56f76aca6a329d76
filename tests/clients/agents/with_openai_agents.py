"""Runs the OpenAI Agents SDK, streamed."""

import asyncio

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    OpenAIResponsesWSModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from city_tools import KEY, PROMPT, TRANSPORT, URL, Report, get_population, get_weather, tell
from openai import AsyncOpenAI

MODELS = {
    "responses": OpenAIResponsesModel,
    "chat": OpenAIChatCompletionsModel,
    "socket": OpenAIResponsesWSModel,
}
set_tracing_disabled(True)


async def main() -> None:
    async with AsyncOpenAI(base_url=URL, api_key=KEY) as client:
        model = MODELS[TRANSPORT]("auto", openai_client=client)
        tools = [function_tool(get_weather), function_tool(get_population)]
        agent = Agent(name="Reporter", tools=tools, model=model, output_type=Report)
        run = Runner.run_streamed(agent, PROMPT, max_turns=8)
        num_events = len([event async for event in run.stream_events()])
        assert num_events > 4, num_events
        tell(run.final_output)
        if isinstance(model, OpenAIResponsesWSModel):
            await model.close()


asyncio.run(main())
