"""Runs a graph of LangGraph: the fast engine calls the tools, the deep one writes the answer."""

import os
import sys

try:
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: `make example NAME=langgraph_agent` brings it.")


def get_weather(city: str) -> str:
    """Temperature in a city, in degrees Celsius."""
    return f"It is 21 degrees in {city}."


def model(name: str) -> ChatOpenAI:
    return ChatOpenAI(
        model=name,
        base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
        api_key=os.environ.get("OPENAI_API_KEY", "sk-lanewise-dev"),
        use_responses_api=True,
    )


def act(state: MessagesState) -> dict:
    return {
        "messages": [model("lanewise-fast").bind_tools([get_weather]).invoke(state["messages"])]
    }


def write(state: MessagesState) -> dict:
    return {"messages": [model("lanewise-deep").invoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("act", act).add_node("tools", ToolNode([get_weather])).add_node("write", write)
graph.add_edge(START, "act").add_edge("tools", "act").add_edge("write", END)
graph.add_conditional_edges("act", tools_condition, {"tools": "tools", END: "write"})
asked = {"messages": [{"role": "user", "content": "Use get_weather for Lisbon."}]}
for message in graph.compile().invoke(asked)["messages"]:
    print(f"{message.type}: {message.text or message.tool_calls}")
