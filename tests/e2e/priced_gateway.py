"""Offers a gateway with prices, tenants with every budget, and the webhook that hears of them."""

import contextlib
import queue
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.gateway_process import CONFIG, GatewayProcess, redis_server, served
from tests.e2e.monitoring import Webhook

RUNS_KEY = "sk-runs-tenant"
POST_TIMEOUT_S = 30.0  # bounds a hang


SPENDERS = ("day", "month", "key_day", "key_month")  # budgets, and the ids of their tenants


def key_of(name: str, number: int = 1) -> str:
    """Returns a key of the tenant with that budget."""
    return f"sk-spender-{name}-{number}"


def _spenders() -> str:
    return "".join(
        f"""
[[tenants]]
id = "{name.replace("_", "-")}"
keys = ["{key_of(name)}", "{key_of(name, 2)}"]
tier = "enterprise"
budgets.{name} = {{ soft_usd = 0.00001, hard_usd = 0.01 }}
"""
        for name in SPENDERS
    )


class BudgetPosts(Webhook):
    """Keeps what is posted, in the order of arrival."""

    def __init__(self) -> None:
        super().__init__()
        self._bodies: queue.Queue[dict[str, Any]] = queue.Queue()

    def take(self, path: str, body: dict[str, Any]) -> None:
        self._bodies.put(body)

    def next(self) -> dict[str, Any]:
        return self._bodies.get(timeout=POST_TIMEOUT_S)


class Priced(NamedTuple):
    """Holds what runs."""

    gateway: GatewayProcess
    redis_url: str
    posts: BudgetPosts


@contextlib.contextmanager
def priced_gateway() -> Iterator[Priced]:
    """Serves until the context ends."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lw-priced-")))
        url = stack.enter_context(redis_server(folder))
        posts = stack.enter_context(BudgetPosts().serving())
        config = folder / "lanewise.toml"
        config.write_text(
            f"""{CONFIG}
[[tenants]]
id = "runs"
keys = ["{RUNS_KEY}"]
tier = "enterprise"
budgets.run = {{ soft_usd = 0.00001, hard_usd = 0.01 }}

{_spenders()}
[budgets]
webhook_url = "{posts.url}"

[[prices]]
model = "lanewise-fast"
input = 1.5
cached_input = 0.15
output = 6.0

[[prices]]
model = "lanewise-deep"
input = 3.0
output = 15.0
"""
        )
        arguments = ("--config", str(config), "--redis", url)
        yield Priced(stack.enter_context(served(folder, *arguments)), url, posts)
