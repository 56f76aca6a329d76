"""Tests clients whose sockets are cut at random points: the answer is whole, in order and once."""

import random

import lanewise
from tests.e2e.cutting_proxy import CuttingProxy
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess, wait_until_at_rest

SEED = 19
STORY = "Tell a story of a lighthouse in 300 words."


async def test_our_python_client_tells_an_answer_once(gateway: GatewayProcess) -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    before = gateway.metrics()
    num_asks = 0
    async with CuttingProxy.running([gateway.port], lambda: chance.randint(3_000, 40_000)) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        async with lanewise.connect(url, DEVELOPMENT_KEY) as client:
            for model in ("lanewise-fast", "lanewise-deep", "lanewise-fast", "auto"):
                events = [
                    event async for event in client.stream(f"{STORY} ({num_asks})", model=model)
                ]
                num_asks += 1
                kinds = [type(event) for event in events]
                said = [e.text for e in events if isinstance(e, lanewise.TextDelta)]
                done = events[-1]
                assert isinstance(done, lanewise.Done)
                assert "".join(said) == done.response.text
                assert kinds.count(lanewise.Started) == 1
                assert lanewise.Restarted not in kinds
        assert proxy.num_cut >= 2
    wait_until_at_rest(gateway)  # a task is counted after its last event
    after = gateway.metrics()
    assert after.total("lanewise_requests_total") - before.total("lanewise_requests_total") == (
        num_asks
    )
