"""Sets the task of every agent here: two tools, and a structured answer made of what they give."""

import json
import os
import sys
from typing import Any

from pydantic import BaseModel

PROMPT = "Use get_weather and get_population for Lisbon, then report."
URL, KEY = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
TRANSPORT = sys.argv[1]  # "responses", "chat" or "socket"
called: list[str] = []


class Report(BaseModel):
    """What was found out about a city."""

    city: str
    degrees: int
    people: int


def get_weather(city: str) -> str:
    """Temperature in a city, in degrees Celsius.

    Args:
        city: The city's name.
    """
    called.append("get_weather")
    return f"It is 21 degrees in {city}."


def get_population(city: str) -> str:
    """Number of people who live in a city.

    Args:
        city: The city's name.
    """
    called.append("get_population")
    return f"In {city} live 545000 people."


def tell(report: Any) -> None:
    """Prints what the test looks at, as the last line."""
    if isinstance(report, BaseModel):
        report = report.model_dump()
    print(json.dumps({"called": sorted(called), "report": report}))
