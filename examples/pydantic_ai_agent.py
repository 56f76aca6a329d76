"""Runs an agent of pydantic-ai: two tools, and an answer that is checked against a type."""

import os
import sys

try:
    from pydantic import BaseModel
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: `make example NAME=pydantic_ai_agent` brings it.")


class Report(BaseModel):
    city: str
    degrees: int
    people: int


def get_weather(city: str) -> str:
    """Temperature in a city, in degrees Celsius."""
    return f"It is 21 degrees in {city}."


def get_population(city: str) -> str:
    """Number of people who live in a city."""
    return f"In {city} live 545,000 people."


provider = OpenAIProvider(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "sk-lanewise-dev"),
)
model = OpenAIResponsesModel("auto", provider=provider)
agent = Agent(model, tools=[get_weather, get_population], output_type=Report)
print(agent.run_sync("Use get_weather and get_population for Lisbon, then report.").output)
