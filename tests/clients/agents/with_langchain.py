"""Runs LangChain's `create_agent`."""

from city_tools import KEY, PROMPT, TRANSPORT, URL, Report, get_population, get_weather, tell
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

model = ChatOpenAI(
    model="auto", base_url=URL, api_key=KEY, use_responses_api=TRANSPORT == "responses"
)
agent = create_agent(model, tools=[get_weather, get_population], response_format=Report)
ended = agent.invoke({"messages": [{"role": "user", "content": PROMPT}]}, {"recursion_limit": 20})
tell(ended["structured_response"])
