"""Tests upstreams that lie in usage, length and size: they are charged by bounds, and cut."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.e2e.lying_tasks import (
    LIMITS,
    PROTOCOLS,
    Asked,
    ask_all,
    client_of,
    lied_to,
    text_of,
)
from tests.e2e.lying_upstream import LIES

NUM_BOUNDED_LIES = 10  # of `LIES`: those in usage
AT_REST_S = 30.0


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_nobody_pays_for_a_lie(folder: Path, redis_url: str, protocol: str) -> None:
    tasks = [Asked(lie, protocol, LIMITS[0]) for lie in LIES]
    tasks.append(Asked("ignores its limit", protocol, LIMITS[1]))
    async with lied_to(folder, redis_url) as (gateway, liar):
        told = await ask_all(gateway, tasks, at_once=12)
        complaints = [f"{each.asked}: {what}" for each in told for what in each.complaints()]
        assert not complaints, "\n".join(complaints)
        for each in told:
            if each.asked.lie in ("ignores its limit", "never stops", "all at once"):
                assert each.body["status"] == "incomplete", each
                assert each.body["incomplete_details"] == {"reason": "max_output_tokens"}
                assert each.body["usage"]["output_tokens"] <= each.asked.most
            if each.asked.lie == "ignores its limit":
                assert len(text_of(each.body).split()) <= each.asked.most * 9 // 8 + 4
            if each.asked.lie.startswith("huge"):
                assert each.body["status"] == "completed", each
        give_up_s = time.monotonic() + AT_REST_S
        while liar.num_open:  # what never ends was stopped at the upstream
            assert time.monotonic() < give_up_s, f"{liar.num_open} answers still go on"
            await asyncio.sleep(0.01)
        samples = await asyncio.to_thread(gateway.metrics)
        bounded = samples.total("lanewise_usage_bounded_total", backend=protocol)
        assert bounded >= NUM_BOUNDED_LIES
        assert samples.total("lanewise_upstream_overruns_total", backend=protocol) >= 5


@pytest.mark.parametrize("address", ["file:///etc/passwd", "http://169.254.169.254/latest/"])
async def test_an_address_that_may_not_be_fetched_is_a_bad_request(
    folder: Path, redis_url: str, address: str
) -> None:
    image = {"type": "input_image", "image_url": address}
    question = {"role": "user", "content": [{"type": "input_text", "text": "lie=none"}, image]}
    body = {"model": "chat", "input": [question]}
    async with lied_to(folder, redis_url) as (gateway, liar), client_of(gateway) as client:
        refused = await client.post("/responses", json=body)
        assert refused.status_code == 400, refused.text
        error = refused.json()["error"]
        assert error["param"] == "input[0].content[1].image_url"
        assert error["code"] == "invalid_image_url"
        assert address[:20] in error["message"]
        assert liar.num_requests == 0
