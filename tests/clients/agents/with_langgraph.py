"""Runs a graph of LangGraph: a model, its tools, and a structured answer at the end; streamed."""

from city_tools import KEY, PROMPT, TRANSPORT, URL, Report, get_population, get_weather, tell
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

TOOLS = [get_weather, get_population]


class State(MessagesState):
    report: Report


model = ChatOpenAI(
    model="auto", base_url=URL, api_key=KEY, use_responses_api=TRANSPORT == "responses"
)


def think(state: State) -> dict:
    return {"messages": [model.bind_tools(TOOLS).invoke(state["messages"])]}


def report(state: State) -> dict:
    return {"report": model.with_structured_output(Report).invoke(state["messages"])}


graph = StateGraph(State)
graph.add_node("think", think)
graph.add_node("tools", ToolNode(TOOLS))
graph.add_node("report", report)
graph.add_edge(START, "think")
graph.add_conditional_edges("think", tools_condition, {"tools": "tools", END: "report"})
graph.add_edge("tools", "think")
graph.add_edge("report", END)
asked = {"messages": [{"role": "user", "content": PROMPT}]}
states = list(graph.compile().stream(asked, {"recursion_limit": 20}, stream_mode="values"))
tell(states[-1]["report"])
