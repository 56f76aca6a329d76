"""Runs pydantic-ai: the answer by a tool, and by the API's own structured outputs."""

from city_tools import (
    KEY,
    PROMPT,
    TRANSPORT,
    URL,
    Report,
    called,
    get_population,
    get_weather,
    tell,
)
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

kind = OpenAIResponsesModel if TRANSPORT == "responses" else OpenAIChatModel
model = kind("auto", provider=OpenAIProvider(base_url=URL, api_key=KEY))
reports = []
for output in (ToolOutput, NativeOutput):
    called.clear()
    agent = Agent(model, tools=[get_weather, get_population], output_type=output(Report))
    reports.append(agent.run_sync(PROMPT).output)
assert reports[0] == reports[1], reports
tell(reports[0])
