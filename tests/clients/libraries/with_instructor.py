"""Asks by instructor for an answer of a type, in each way it has."""

import json
import os

import instructor
from openai import OpenAI
from pydantic import BaseModel

MODES = ("TOOLS", "TOOLS_STRICT", "JSON", "MD_JSON", "JSON_SCHEMA", "RESPONSES_TOOLS")
MESSAGES = [{"role": "user", "content": "It is 21 degrees in Lisbon, where 545000 people live."}]


class Report(BaseModel):
    city: str
    degrees: int
    people: int


told = {}
for name in MODES:
    client = instructor.from_openai(OpenAI(max_retries=0), mode=getattr(instructor.Mode, name))
    asked = {"model": "auto", "messages": MESSAGES, "response_model": Report, "max_retries": 0}
    whole = client.chat.completions.create(**asked)
    *_, streamed = client.chat.completions.create_partial(**asked)
    told[name] = [whole.model_dump(), streamed.model_dump()]
print(json.dumps({"modes": told, "base_url": os.environ["OPENAI_BASE_URL"]}))
