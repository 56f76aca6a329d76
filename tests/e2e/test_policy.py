"""Tests policies as an admin meets them: the walk-through of docs/policies.md on two real gateways.

A stranger writes a policy, checks it, applies it under load, sees it in the metrics of both
gateways and rolls it back; no task fails.
"""

import concurrent.futures
import io
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI
from redis import Redis

from gateway.cli.main import main
from tests.e2e.admin_api import ADMIN_KEY, ask
from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    GatewayProcess,
    redis_server,
    wait_until_at_rest,
)

STUDIO_KEY = "sk-studio-tenant"
STUDIO = f"""
[[tenants]]
id = "studio"
keys = ["{STUDIO_KEY}"]
limits.fast = {{ requests_per_min = 6000, tokens_per_min = 20000000, max_concurrent = 64 }}
limits.deep = {{ requests_per_min = 6000, tokens_per_min = 20000000, max_concurrent = 64 }}
"""
SECOND_ADMIN_KEY = "sk-second-admin"
ADMINS = f"""
[[admin.keys]]
name = "development"
key = "{ADMIN_KEY}"

[[admin.keys]]
name = "second"
key = "{SECOND_ADMIN_KEY}"
"""
POLICY = """\
version = "studio-fast"

[[rules]]
name = "studio-refactorings-go-fast"
when = { tenants = ["studio"], kinds = ["refactor"] }
route = "fast"
fallback = ["deep"]

[[rules]]
name = "deep-canary"
when = { labels = ["deep"] }
percent = 10
route = "parallel"
fallback = ["deep"]
"""
REFACTOR = "Refactor the billing module into smaller classes."
# Deep by its words; each has another beginning, so each is a conversation of its own.
DEEP = "Number {n}. Design a fault-tolerant multi-region consensus protocol and prove it safe."

FOLLOW_S = 60.0  # bounds a hang; that it takes less than a second is the watch's, and is measured


@pytest.fixture(scope="module")
def redis_of_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Gives the URL of the Redis that both gateways have."""
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, redis_of_pair: str
) -> Iterator[tuple[GatewayProcess, ...]]:
    """Gives two gateways on one Redis."""
    folder = tmp_path_factory.mktemp("lw")
    config = folder / "lanewise.toml"
    config.write_text(CONFIG + STUDIO + ADMINS)
    arguments = ("--config", str(config), "--redis", redis_of_pair)
    gateways = tuple(GatewayProcess(folder, *arguments) for _ in range(2))
    try:
        for gateway in gateways:
            gateway.wait_until_ready()
        yield gateways
        for gateway in gateways:
            wait_until_at_rest(gateway)
            assert "Traceback" not in gateway.log, gateway.log
    finally:
        statuses = [gateway.stop() for gateway in gateways]
    assert statuses == [0, 0]


class Admin:
    """Runs `lanewise policy ...` over real HTTP in this process, which spares a start of Python."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(
        self,
        gateway: GatewayProcess,
        *arguments: str,
        status: int = 0,
        stdin: str = "",
        key: str = ADMIN_KEY,
    ) -> str:
        """Returns what it printed."""
        self._monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        self._capsys.readouterr()
        given = ["policy", *arguments, "--url", gateway.url, "--admin-key", key]
        found = main(given)
        told = self._capsys.readouterr()
        assert found == status, (found, told)
        return told.out + told.err


@pytest.fixture
def policy(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Admin:
    return Admin(capsys, monkeypatch)


def until_both(pair: tuple[GatewayProcess, ...], version: int) -> None:
    """Returns once both gateways have that version in force."""
    deadline = time.monotonic() + FOLLOW_S
    for gateway in pair:
        while gateway.metrics().total("lanewise_policy_version", mode="live") != version:
            assert time.monotonic() < deadline, f"{gateway.url} does not follow:\n{gateway.log}"
            time.sleep(0.02)


class Load:
    """Runs tasks one after the other against both gateways until it is stopped."""

    def __init__(self, pair: tuple[GatewayProcess, ...]) -> None:
        self.failures: list[str] = []
        self.done = 0
        self._pair = pair
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(2)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + FOLLOW_S
        target = self.done + count
        while self.done < target and not self.failures:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _run(self, n: int) -> None:
        client = OpenAI(base_url=self._pair[n].base_url, api_key=STUDIO_KEY, max_retries=0)
        with client:
            while not self._stop.is_set():
                try:
                    with client.responses.stream(
                        model="auto", input=REFACTOR, max_output_tokens=40
                    ) as stream:
                        final = [event.type for event in stream][-1]
                    if final not in ("response.completed", "response.incomplete"):
                        self.failures.append(final)
                except Exception as error:
                    self.failures.append(repr(error))
                self.done += 1


def answer(gateway: GatewayProcess, key: str, prompt: str) -> dict[str, object]:
    client = OpenAI(base_url=gateway.base_url, api_key=key, max_retries=0)
    with client:
        response = client.responses.create(model="auto", input=prompt, max_output_tokens=16)
    routing: dict[str, object] = response.model_extra["routing"]  # type: ignore[index]
    return routing


def test_the_walk_through(pair: tuple[GatewayProcess, ...], tmp_path: Path, policy: Admin) -> None:
    first, second = pair
    file = tmp_path / "policy.toml"

    # A slip is pointed at, with and without a gateway.
    file.write_text(POLICY.replace("kinds", "kind").replace('"studio"', '"studoi"'))
    for offline in ([], ["--offline"]):
        told = policy(first, "check", str(file), *offline, status=1)
        assert f"{file}:5:32: rules[0].when.kind: unknown field 'kind'" in told
        assert "did you mean 'kinds'" in told
    file.write_text(POLICY.replace('"studio"', '"studoi"'))
    told = policy(first, "check", str(file))
    assert "no tenant 'studoi' here; did you mean 'studio'?" in told
    file.write_text(POLICY)
    assert "is a valid policy" in policy(first, "check", str(file))

    # What it would change, and what it would do, before anything is done.
    told = policy(first, "diff", str(file), status=1)
    assert 'rules["deep-canary"].percent: (none) -> 10' in told
    assert f"To put it in force: lanewise policy apply {file} --expect 0\n" in told
    told = policy(first, "explain", REFACTOR, "--tenant", "studio", "--file", str(file))
    assert "studio-refactorings-go-fast: fires" in told
    assert "Rules of policy studio-fast for tenant studio" in told
    assert "'studio-refactorings-go-fast' comes first" in told
    told = policy(first, "explain", REFACTOR, "--tenant", "dev", "--file", str(file))
    assert "studio-refactorings-go-fast: no: tenants = studio (here dev)" in told

    unnamed = tmp_path / "unnamed.toml"
    unnamed.write_text(POLICY.replace('version = "studio-fast"', ""))
    told = policy(first, "explain", REFACTOR, "--file", str(unnamed))
    assert f"Rules of policy {unnamed} for tenant" in told, "not of the default policy"

    with Load(pair) as load:
        load.wait_for(4)
        assert "Version 1 is in force; before it was 0." in policy(
            first, "apply", str(file), "--comment", "try it"
        )
        until_both(pair, 1)
        load.wait_for(4)
        for gateway in pair:
            routing = answer(gateway, STUDIO_KEY, REFACTOR)
            assert (routing["route"], routing["policy_version"]) == ("fast", "v1")
        check_canary(first)
        assert "Version 0 is in force; before it was 1." in policy(second, "rollback")
        until_both(pair, 0)
        load.wait_for(4)
    assert load.failures == []
    assert answer(second, STUDIO_KEY, REFACTOR)["policy_version"] == "default"

    for gateway in pair:
        decided = gateway.metrics().total(
            "lanewise_route_decisions_total",
            policy="v1",
            rule="studio-refactorings-go-fast",
            route="fast",
            mode="live",
        )
        assert decided > 0
    told = policy(first, "history")
    assert [line.split()[3] for line in told.splitlines()] == ["rollback", "activate", "store"]
    assert "development" in told


def check_canary(gateway: GatewayProcess) -> None:
    """Checks that some deep work goes to both engines, always the same, as `explain` foretold."""
    prompts = [DEEP.format(n=n) for n in range(40)]

    def foretold(prompt: str) -> bool:
        _, told = ask(gateway, "POST", "/admin/explain", {"prompt": prompt, "tenant": "dev"})
        assert told["label"] == "deep", told
        return any(rule["name"] == "deep-canary" and rule["fired"] for rule in told["rules"])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        chosen = dict(zip(prompts, pool.map(foretold, prompts), strict=True))
        hits = [prompt for prompt, is_in in chosen.items() if is_in]
        others = [prompt for prompt, is_in in chosen.items() if not is_in]
        assert 0 < len(hits) < 14, "of 40 conversations 4 are expected; the hash is always the same"
        tried = hits[:2] + others[:2]
        routings = pool.map(lambda prompt: answer(gateway, DEVELOPMENT_KEY, prompt), tried)
    assert [routing["route"] for routing in routings] == ["parallel"] * 2 + ["deep"] * 2
    taken = gateway.metrics().total(
        "lanewise_route_decisions_total", rule="deep-canary", route="parallel", mode="canary"
    )
    assert taken == 2


def test_commands_as_programs_use_them(
    pair: tuple[GatewayProcess, ...], tmp_path: Path, policy: Admin
) -> None:
    first, second = pair
    stored = json.loads(
        policy(first, "apply", "-", "--store-only", "--json", stdin=POLICY + "# two\n")
    )
    version = stored["version"]
    assert stored["is_new"]
    policy(second, "activate", str(version), "--expect", "99", status=3)
    assert policy(second, "show", str(version)) == POLICY + "# two\n"
    policy(second, "activate", "999", status=2)
    told = policy(second, "diff", str(version), status=1)
    assert told.endswith(f"in force: lanewise policy activate {version} --expect 0\n")
    policy(second, "activate", str(version), "--expect", "0")
    until_both(pair, version)
    listed = json.loads(policy(first, "list", "--json"))
    assert listed["in_force"] == {"version": version, "source": "store", "shadow": 0}
    assert "in force" in policy(first, "list")
    assert policy(first, "diff", str(version)) == "No difference.\n"
    assert "in force" not in policy(first, "diff", str(version), "--against", "0", status=1)
    assert policy(first, "apply", "-", stdin=POLICY + "# two\n").startswith(
        f"Version {version} is in force already, with this content.\n"
    )
    policy(first, "rollback", "--json")
    until_both(pair, 0)
    policy(first, "rollback", "--expect", str(version), status=3)
    expecting = ("apply", "-", "--expect", str(version))
    told = policy(first, *expecting, stdin=POLICY + "# two\n", status=3)
    assert "version 0 is in force" in told, "what is expected may not be so"
    policy(first, "apply", str(tmp_path / "none.toml"), status=2)
    assert json.loads(policy(first, "show", "0", "--json"))["stored"] is None
    as_json = policy(first, "show")
    assert policy(first, "check", "-", "--offline", stdin=as_json).endswith("valid policy.\n")


UNREADABLE = {  # what a stored version may be like: field -> content, and what is said of it
    "newer": ({"content": b'{"version": "x", "invented_later": 1}'}, "invented_later"),
    "no text": ({"content": b"version = '\xff'"}, "UTF-8"),
    "other rot": ({"content": b"rules = 3", "at": b"yesterday", "author": b"\xff"}, "rules"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_stored_version_that_cannot_be_read_is_shown(
    pair: tuple[GatewayProcess, ...], policy: Admin, redis_of_pair: str, kind: str
) -> None:
    first, _ = pair
    fields, named = UNREADABLE[kind]
    applied = policy(first, "apply", "-", "--store-only", "--json", stdin=f"{POLICY}# {kind}\n")
    version = json.loads(applied)["version"]
    assert json.loads(policy(first, "show", str(version), "--json"))["problems"] == []
    key = f"lw1:{{policy}}:v:{version}"
    with Redis.from_url(redis_of_pair) as redis:
        redis.hset(key, mapping=fields)
    told = policy(first, "show", str(version), status=1)
    assert fields["content"].decode(errors="replace") in told
    assert f"cannot read version {version}" in told
    assert named in told.partition("cannot read")[2]
    assert "rollback" in told
    assert policy(first, "list")
    for command in ("activate", "shadow"):
        assert named in policy(first, command, str(version), status=2)
    with Redis.from_url(redis_of_pair) as redis:
        redis.hdel(key, "content")
    assert "lost its document: apply" in policy(first, "show", str(version), status=2)
    told = policy(first, "apply", "-", "--store-only", stdin=f"{POLICY}# {kind}\n")
    assert f"Stored as version {version + 1};" in told, "one's own copy of it is a new version"


def test_a_rollback_to_what_cannot_be_read_is_refused(
    pair: tuple[GatewayProcess, ...], policy: Admin, redis_of_pair: str
) -> None:
    first, _ = pair
    versions = []
    for number in (1, 2):
        told = policy(first, "apply", "-", "--json", stdin=f"{POLICY}# to roll back {number}\n")
        versions.append(json.loads(told)["version"])
    until_both(pair, versions[1])
    with Redis.from_url(redis_of_pair) as redis:
        redis.hset(f"lw1:{{policy}}:v:{versions[0]}", "content", "rules = 3")
    told = policy(first, "rollback", status=2)
    assert "Not rolled back" in told
    assert "rules" in told
    assert json.loads(policy(first, "list", "--json"))["active"] == versions[1]
    policy(first, "activate", "0")
    until_both(pair, 0)


def test_what_is_in_force_is_shown_where_redis_has_lost_it(
    pair: tuple[GatewayProcess, ...], policy: Admin, redis_of_pair: str
) -> None:
    first, _ = pair
    told = policy(first, "apply", "-", "--json", stdin=f"{POLICY}# to be lost\n")
    version = json.loads(told)["version"]
    until_both(pair, version)
    with Redis.from_url(redis_of_pair) as redis:
        redis.delete(f"lw1:{{policy}}:v:{version}")
    shown = policy(first, "show")
    assert f'"version": "v{version}"' in shown
    told = policy(first, "diff", "-", stdin=POLICY, status=1)
    only, command = told.splitlines()
    assert only.startswith(f'version: "v{version}" -> '), "what it was called is lost"
    assert command.endswith(f"--expect {version}")
    assert policy(first, "check", "-", stdin=shown).startswith("- is a valid policy.\n")
    assert "no policy version" in policy(first, "shadow", str(version), status=2)
    policy(first, "rollback")
    until_both(pair, 0)
    policy(first, "show", str(version), status=2)


def test_two_admins_do_not_undo_each_other(pair: tuple[GatewayProcess, ...], policy: Admin) -> None:
    first, second = pair
    told = policy(second, "diff", "-", stdin=POLICY + "# mine\n", status=1)
    *_, token = told.split("--expect ")
    as_json = json.loads(policy(second, "diff", "-", "--json", stdin=POLICY, status=1))
    assert as_json["expected"] == int(token)
    policy(first, "apply", "-", "--expect", token.strip(), stdin=POLICY)
    policy(second, "apply", "-", "--expect", token.strip(), stdin=POLICY + "# mine\n", status=3)
    key, mine = SECOND_ADMIN_KEY, POLICY + "# mine\n"
    assert "development has put" in policy(second, "apply", "-", stdin=mine, status=3, key=key)
    policy(second, "apply", "-", "--force", stdin=mine, key=key)
    policy(second, "apply", "-", stdin=POLICY + "# mine too\n", key=key)  # over one's own
    policy(first, "activate", "0")
    until_both(pair, 0)


def test_a_shadow_decides_without_effect(pair: tuple[GatewayProcess, ...]) -> None:
    first, _ = pair
    document = '[[rules]]\nname = "all-deep"\nroute = "deep"\n'
    body = {"document": document}
    _, stored = ask(first, "POST", "/admin/policies", body)
    version = stored["version"]
    status, _ = ask(first, "POST", "/admin/policies/shadow", {"version": version})
    assert status == 200
    routing = answer(first, STUDIO_KEY, "Rename x to y.")
    assert routing["policy_version"] == "default"
    samples = first.metrics()
    assert samples.total("lanewise_policy_version", mode="shadow") == version
    shadowed = samples.total(
        "lanewise_route_decisions_total",
        policy=f"v{version}",
        rule="all-deep",
        route="deep",
        mode="shadow",
    )
    assert shadowed == 1
    ask(first, "POST", "/admin/policies/shadow", {"version": 0})


REFUSED = [
    ("POST", "/admin/policies", {"document": "x = 1"}, 400, "policy:1:1: x: unknown field"),
    ("POST", "/admin/policies", {"documnet": ""}, 400, "documnet"),
    ("GET", "/admin/policies/77", None, 404, "no policy version 77"),
    ("GET", "/admin/policies/seven", None, 404, ""),
    ("POST", "/admin/policies/77/activate", {}, 404, "no policy version 77"),
    ("POST", "/admin/policies/0/activate", {}, 400, "`expected` is missing"),
    ("POST", "/admin/policies/rollback", {}, 400, "`expected` is missing"),
    ("POST", "/admin/policies/0/activate", {"expected": 55}, 409, "not 55 as expected"),
    ("POST", "/admin/policies/shadow", {"version": 77}, 404, "no policy version 77"),
    (
        "POST",
        "/admin/policies",
        {"document": '[aliases.lanewise-fast]\nroute = "deep"\n'},
        400,
        "'lanewise-fast' is an engine's own model",
    ),
    ("POST", "/admin/explain", {"prompt": "x", "tenant": "nobody"}, 404, "Known tenants: "),
    ("POST", "/admin/explain", {"prompt": "x", "document": "x = 1"}, 400, "unknown field"),
    ("POST", "/admin/explain", {"prompt": "x", "metadata": {"route": "x"}}, 400, "route"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "words"), REFUSED)
def test_refusals_say_why(
    pair: tuple[GatewayProcess, ...],
    method: str,
    path: str,
    body: dict[str, object] | None,
    status: int,
    words: str,
) -> None:
    found, told = ask(pair[0], method, path, body)
    assert found == status
    assert words in told["error"]["message"]


def test_the_schema_describes_policies(pair: tuple[GatewayProcess, ...]) -> None:
    _, schema = ask(pair[0], "GET", "/schema/openapi.json", key=None)
    posted = schema["paths"]["/admin/policies"]["post"]
    assert "requestBody" in posted
    assert {"get", "post"} <= set(schema["paths"]["/admin/policies"])
    assert "/admin/policies/{version}/activate" in schema["paths"]
