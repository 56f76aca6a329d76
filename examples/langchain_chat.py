"""Chats by LangChain's OpenAI model over the Responses API (pip install langchain-openai)."""

import os
import sys

try:
    from langchain_openai import ChatOpenAI
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: `make example NAME=langchain_chat` brings it.")

model = ChatOpenAI(
    model="auto",
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "sk-lanewise-dev"),
    use_responses_api=True,
)
for chunk in model.stream("Explain what a mutex is."):
    print(chunk.text, end="", flush=True)
print()
