"""Runs smolagents' agent that calls tools; its answer is what the final tool takes."""

from city_tools import KEY, PROMPT, URL, get_population, get_weather, tell
from smolagents import OpenAIServerModel, Tool, ToolCallingAgent, tool


class FinalAnswer(Tool):
    name = "final_answer"
    description = "Takes the report on a city, and ends the task."
    inputs = {  # noqa: RUF012, as smolagents wants it
        "city": {"type": "string", "description": "The city's name."},
        "degrees": {"type": "integer", "description": "How warm it is."},
        "people": {"type": "integer", "description": "How many live there."},
    }
    output_type = "object"

    def forward(self, city: str, degrees: int, people: int) -> dict:
        return {"city": city, "degrees": degrees, "people": people}


agent = ToolCallingAgent(
    tools=[tool(get_weather), tool(get_population), FinalAnswer()],
    model=OpenAIServerModel("auto", api_base=URL, api_key=KEY),
    max_steps=8,
)
ended = agent.run(PROMPT, return_full_result=True)
assert ended.state == "success", ended.state
tell(ended.output)
