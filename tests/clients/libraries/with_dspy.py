"""Runs DSPy's programs by each adapter, over chat completions or the Responses API."""

import json
import os
import sys

import dspy

called: list[str] = []


def get_weather(city: str) -> str:
    """Temperature in a city, in degrees Celsius."""
    called.append("get_weather")
    return f"It is 21 degrees in {city}."


def get_population(city: str) -> str:
    """Number of people who live in a city."""
    called.append("get_population")
    return f"In {city} live 545000 people."


class Report(dspy.Signature):
    question: str = dspy.InputField()
    city: str = dspy.OutputField()
    degrees: int = dspy.OutputField()


model = dspy.LM("openai/auto", model_type=sys.argv[1], cache=False, num_retries=0)
assert os.environ["OPENAI_BASE_URL"]
told = []
for adapter in (dspy.ChatAdapter(), dspy.JSONAdapter(), dspy.XMLAdapter()):
    dspy.configure(lm=model, adapter=adapter)
    agent = dspy.ReAct(Report, tools=[get_weather, get_population], max_iters=6)
    for program in (dspy.Predict(Report), dspy.ChainOfThought(Report), agent):
        called.clear()
        given = program(question="Use get_weather and get_population for Lisbon: how many degrees?")
        told.append([given.city, isinstance(given.degrees, int), [*called]])
    assert given.degrees == 21, given
print(json.dumps(told))
