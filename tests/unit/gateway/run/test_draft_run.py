"""Tests a draft's reservations: each group is settled once, however its run ends."""

import msgspec

from backends.contract import Finish, FinishReason, Usage
from tests.unit.gateway.doubles import MANY, failure, stop, text
from tests.unit.gateway.driven_task import Running

CHECKED = Usage(7, 0, 20, num_accepted_tokens=9, num_rejected_tokens=8)


async def test_the_draft_gives_its_place_back_while_deep_answers() -> None:
    running = Running("draft")
    fast = await running.fast()
    assert (running.held("fast"), running.held("deep")) == (1, 1), "both are asked for beforehand"
    fast.sink.push(text("Nearly right."))
    fast.sink.finish(stop(3))
    deep = await running.deep()
    assert deep.request.prediction == "Nearly right."
    await running.free("fast")
    assert running.left("fast", "tokens") == MANY.tokens_per_min - 10
    deep.sink.push(text("Right."))
    deep.sink.finish(Finish(FinishReason.STOP, CHECKED, 9))
    terminal = await running.end()
    assert [item["content"][0]["text"] for item in terminal["output"]] == ["Right."]
    assert running.left("deep", "tokens") == MANY.tokens_per_min - 27, "rejected ones are charged"
    details = terminal["routing"]["usage"]["gpu"]["output_tokens_details"]
    assert details["accepted_prediction_tokens"] == 9
    assert details["rejected_prediction_tokens"] == 8
    assert len(running.world.deep.generations) == 1


async def test_deep_gives_its_place_back_where_the_draft_stands() -> None:
    running = Running("draft")
    fast = await running.fast()
    fast.sink.push(text("A draft."))
    fast.sink.finish(stop(3))
    deep = await running.deep()
    deep.sink.finish(failure("gpu"))
    terminal = await running.end()
    assert terminal["status"] == "completed"
    assert terminal["output"][0]["content"][0]["text"] == "A draft."
    assert terminal["routing"]["answered_by"] == "wafer"
    assert terminal["routing"]["errors"]


async def test_a_client_that_leaves_amid_the_draft_is_charged_for_the_draft_alone() -> None:
    running = Running("draft")
    fast = await running.fast()
    fast.sink.push(text("A dra"))
    running.job.stop("cancelled")
    terminal = await running.end()
    assert terminal["status"] == "incomplete"
    assert terminal["output"] == [], "nobody saw it"
    assert fast.num_cancels == 1
    assert running.world.deep.generations == []
    assert (running.held("fast"), running.held("deep")) == (0, 0)
    assert running.left("fast", "tokens") == MANY.tokens_per_min - 9
    assert running.left("deep", "tokens") == MANY.tokens_per_min


async def test_a_draft_that_is_read_in_the_prompt_is_no_input_of_the_conversation() -> None:
    running = Running("draft")
    gpu = running.world.deep
    gpu._info = msgspec.structs.replace(gpu.info, prediction_tokens=30)
    fast = await running.fast()
    fast.sink.push(text("one two three four five six seven eight nine ten"))
    fast.sink.finish(stop(10))
    deep = await running.deep()
    num_context = deep.request.num_prompt_tokens
    deep.sink.push(text("Right."))
    reported = Usage(num_context + 30 + 10, 0, 20)
    deep.sink.finish(Finish(FinishReason.STOP, reported, 9))
    terminal = await running.end()
    assert terminal["usage"]["input_tokens"] == num_context
    assert terminal["routing"]["usage"]["gpu"]["input_tokens"] == num_context + 40, "it is charged"
