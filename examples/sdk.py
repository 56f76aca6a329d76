"""Uses our own client: routing hints, typed routing, several turns at once, steering."""

import asyncio
import os
import sys

try:
    from lanewise import TextDelta, connect
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: `make example NAME=sdk` brings it.")

URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080")
KEY = os.environ.get("OPENAI_API_KEY", "sk-lanewise-dev")


async def main() -> None:
    async with connect(URL, KEY) as lanewise:
        quick, thorough = await asyncio.gather(
            lanewise.create("Name a sorting algorithm.", route="fast"),
            lanewise.create("Prove that merge sort is stable.", route="deep"),
        )
        for response in (quick, thorough):
            assert response.routing is not None
            print(f"{response.routing.route}: {response.usage.output_tokens} tokens")

        async with lanewise.stream("Explain it at length.", after=thorough) as stream:
            steered = False
            async for event in stream:
                if isinstance(event, TextDelta):
                    print(event.text, end="", flush=True)
                    if not steered:
                        steered = True
                        await stream.steer("In one sentence, please.")
        print()


asyncio.run(main())
