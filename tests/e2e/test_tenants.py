"""Tests tenants, tiers and keys made at run time, by the official SDK on a real gateway."""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import openai
import pytest
import redis
import websockets.sync.client
from openai import OpenAI
from websockets.exceptions import ConnectionClosed

from tests.e2e.admin_api import ask
from tests.e2e.gateway_process import GatewayProcess

LONG = {"model": "lanewise-deep", "input": "Write an essay on locks.", "max_output_tokens": 100_000}
FAST = {**LONG, "model": "lanewise-fast"}


class Admin:
    """Calls the admin API of the gateway, and keeps what it made."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.gateway = gateway

    def do(self, method: str, path: str, **body: Any) -> Any:
        status, answer = ask(self.gateway, method, f"/admin{path}", body if body else b"{}")
        assert status < 300, answer
        return answer

    def refused(self, method: str, path: str, **body: Any) -> tuple[int, str]:
        status, answer = ask(self.gateway, method, f"/admin{path}", body if body else b"{}")
        return status, answer["error"]["message"]

    def key(self, tenant: str, **fields: Any) -> tuple[str, str]:
        """Returns a new key's id, and the key."""
        made = self.do("POST", "/keys", tenant=tenant, **fields)
        return made["record"]["id"], made["key"]

    def client(self, key: str) -> OpenAI:
        return OpenAI(base_url=self.gateway.base_url, api_key=key, max_retries=0)


def until_closed(connection: Any) -> list[Any]:
    """Returns what comes before the gateway closes the connection."""
    events: list[Any] = []
    with suppress(ConnectionClosed):
        for event in connection:
            events.append(event)  # noqa: PERF402 - the close must not lose them
    return events


@pytest.fixture
def admin(gateway: GatewayProcess) -> Iterator[Admin]:
    admin = Admin(gateway)
    yield admin
    for tenant in admin.do("GET", "/tenants"):
        if not tenant["configured"]:
            admin.do("DELETE", f"/tenants/{tenant['id']}")
            ask(gateway, "DELETE", f"/admin/tenants/{tenant['id']}/data")


def test_a_tenant_and_its_key_are_made_used_and_revoked(admin: Admin) -> None:
    made = admin.do("POST", "/tenants", id="acme", tier="pro")
    assert set(made["limits"]) == {"fast", "deep"}
    key_id, key = admin.key("acme", name="ci")
    with admin.client(key) as client:
        assert client.responses.create(model="auto", input="Hi.").output_text
        shown = admin.do("GET", "/keys?tenant=acme")[0]
        assert (shown["id"], shown["state"], shown["name"]) == (key_id, "active", "ci")
        assert shown["last_used_at"] is not None
        assert key not in json.dumps(shown)
        assert admin.do("POST", f"/keys/{key_id}/revoke")["state"] == "revoked"
        with pytest.raises(openai.AuthenticationError) as caught:
            client.responses.create(model="auto", input="Hi.")
    assert caught.value.code == "invalid_api_key"
    audit = [(entry["action"], entry["author"]) for entry in admin.do("GET", "/audit?limit=3")]
    assert audit == [
        ("keys.revoke", "development"),
        ("keys.create", "development"),
        ("tenants.create", "development"),
    ]


@pytest.mark.parametrize("model", ["lanewise-fast", "lanewise-deep"])
def test_a_right_guess_at_anothers_prompt_looks_like_a_wrong_one(admin: Admin, model: str) -> None:
    secret = f"The launch of {model} is on the ninth of May. " * 40
    for tenant in ("acme", "spy"):
        admin.do("POST", "/tenants", id=tenant, tier="enterprise")

    def num_cached(key: str, text: str) -> int:
        with admin.client(key) as client:
            answer = client.responses.create(
                model=model,
                instructions=text,
                input=[{"role": "system", "content": text}, {"role": "user", "content": "Hi."}],
                max_output_tokens=16,
            )
        assert answer.usage is not None
        return answer.usage.input_tokens_details.cached_tokens

    (_, own), (_, second), (_, spy) = map(admin.key, ("acme", "acme", "spy"))
    assert num_cached(own, secret) == 0
    assert num_cached(spy, secret) == num_cached(spy, secret.replace("May", "June")) == 0
    assert num_cached(second, secret) > 800, "a tenant's keys share"


def test_a_revoked_key_ends_what_runs_under_it(admin: Admin) -> None:
    admin.do("POST", "/tenants", id="acme", tier="enterprise")
    key_id, key = admin.key("acme")
    _, other = admin.key("acme")
    with (
        admin.client(key) as client,
        admin.client(other) as bystander,
        client.responses.connect() as connection,
        bystander.responses.connect() as kept,
    ):
        connection.response.create(**FAST)
        kept.response.create(model="lanewise-fast", input="Hi.")
        stream = client.responses.create(**LONG, stream=True)
        next(iter(stream))
        for event in connection:
            if event.type == "response.output_text.delta":
                break
        revoker = threading.Thread(target=admin.do, args=("POST", f"/keys/{key_id}/revoke"))
        revoker.start()
        last = until_closed(connection)[-1]
        revoker.join()
        assert (last.type, last.error.code) == ("error", "invalid_api_key")
        assert [event.type for event in stream][-1] == "response.incomplete"
        assert any(event.type == "response.completed" for event in kept)


def test_a_revoked_key_reads_no_background_response_on(admin: Admin) -> None:
    admin.do("POST", "/tenants", id="acme", tier="enterprise")
    key_id, key = admin.key("acme")
    _, other = admin.key("acme")
    with admin.client(key) as reader, admin.client(other) as owner:
        began = owner.responses.create(**LONG, background=True)
        events = reader.responses.retrieve(began.id, stream=True)
        next(iter(events))
        admin.do("POST", f"/keys/{key_id}/revoke")
        assert [each.type for each in events][-1] != "response.completed"
        assert owner.responses.retrieve(began.id).status == "in_progress"
        owner.responses.cancel(began.id)


def test_a_limit_of_0_asks_for_no_retry(admin: Admin) -> None:
    admin.do("POST", "/tenants", id="acme", tier="pro", limits={"fast": {"requests_per_min": 0}})
    with admin.client(admin.key("acme")[1]) as client:
        with pytest.raises(openai.RateLimitError, match="the limit is 0") as caught:
            client.responses.create(model="lanewise-fast", input="Hi.")
        assert client.responses.create(model="lanewise-deep", input="Hi.").output_text
    headers = caught.value.response.headers
    assert headers["x-should-retry"] == "false"
    assert "retry-after" not in headers
    assert "try again" not in caught.value.message.lower()


@pytest.mark.parametrize("ends", ["revoked", "deleted"])
def test_each_protocol_says_that_a_key_ended_amid_its_answer(admin: Admin, ends: str) -> None:
    admin.do("POST", "/tenants", id="acme", tier="enterprise")
    key_id, key = admin.key("acme")
    essay = [{"role": "user", "content": LONG["input"]}]
    body = {"model": LONG["model"], "messages": essay, "max_tokens": 100_000}
    headers = {"Authorization": f"Bearer {key}"}
    paths = ("/chat/completions", "/messages")
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        client = stack.enter_context(httpx.Client(headers=headers, timeout=60))
        streams = [
            stack.enter_context(
                client.stream("POST", admin.gateway.base_url + path, json=body | {"stream": True})
            )
            for path in paths
        ]
        whole = [
            pool.submit(client.post, admin.gateway.base_url + path, json=body) for path in paths
        ]
        deadline_s = time.monotonic() + 30
        while admin.gateway.metrics().total("lanewise_tasks_running") < 4:
            assert time.monotonic() < deadline_s
        if ends == "revoked":
            admin.do("POST", f"/keys/{key_id}/revoke")
        else:
            admin.do("DELETE", "/tenants/acme")
        for each in whole:
            answer = each.result()
            assert answer.status_code == 401, answer.text
            assert answer.json()["error"]["type"] == "authentication_error"
        for stream in streams:
            assert stream.status_code == 200
            lines = [line for line in stream.iter_lines() if line.startswith("data: {")]
            error = json.loads(lines[-1].removeprefix("data: "))["error"]
            assert error["type"] == "authentication_error", lines[-1]


def test_the_close_code_says_that_it_is_about_the_key(admin: Admin) -> None:
    admin.do("POST", "/tenants", id="acme", tier="pro")
    key_id, key = admin.key("acme")
    headers = {"Authorization": f"Bearer {key}"}
    url = admin.gateway.socket_url
    with websockets.sync.client.connect(url, additional_headers=headers) as socket:
        admin.do("POST", f"/keys/{key_id}/revoke")
        error = json.loads(socket.recv(timeout=60))
        assert (error["type"], error["status"]) == ("error", 401)
        with pytest.raises(ConnectionClosed) as caught:
            socket.recv(timeout=60)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1008


def test_a_key_that_expires_ends_its_connections(admin: Admin) -> None:
    admin.do("POST", "/tenants", id="acme", tier="pro")
    _, key = admin.key("acme", expires_in_s=2)
    with admin.client(key) as client, client.responses.connect() as connection:
        events = until_closed(connection)
        assert [event.type for event in events] == ["error"]
        assert "expired" in events[0].error.message
        with pytest.raises(openai.AuthenticationError):
            client.models.list()


def test_both_keys_hold_while_one_is_rotated(admin: Admin) -> None:
    admin.do("POST", "/tenants", id="acme", tier="pro")
    old_id, old = admin.key("acme")
    made = admin.do("POST", f"/keys/{old_id}/rotate", overlap_s=3600)
    assert made["record"]["replaces"] == old_id
    for key in (old, made["key"]):
        with admin.client(key) as client:
            client.models.list()
    now = admin.do("POST", f"/keys/{made['record']['id']}/rotate", overlap_s=0)
    with admin.client(now["key"]) as client:
        client.models.list()
    with admin.client(made["key"]) as client, pytest.raises(openai.AuthenticationError):
        client.models.list()
    assert admin.refused("POST", f"/keys/{made['record']['id']}/rotate", overlap_s=0)[0] == 409


def test_a_rotated_key_ends_when_the_old_one_would_have(admin: Admin) -> None:
    admin.do("POST", "/tenants", id="acme", tier="pro")

    def rotated(key_id: str, **how: Any) -> Any:
        return admin.do("POST", f"/keys/{key_id}/rotate", **how)["record"]

    old = admin.do("POST", "/keys", tenant="acme", expires_in_s=90 * 86_400)["record"]
    once = rotated(old["id"])
    again = rotated(old["id"], overlap_s=60)  # its own end is by now that of the overlap
    next_one = rotated(once["id"], expires_in_s=None)
    assert [each["expires_at"] for each in (once, again, next_one)] == [old["expires_at"]] * 3
    told = rotated(again["id"], expires_in_s=3_600)
    assert told["expires_at"] == told["created_at"] + 3_600
    endless = admin.do("POST", "/keys", tenant="acme")["record"]
    assert rotated(endless["id"])["expires_at"] is None


def test_a_key_that_ended_long_ago_leaves_nothing(
    admin: Admin, redis_client: "redis.Redis[bytes]"
) -> None:
    limits = {"fast": {"max_concurrent": 2}}
    admin.do("POST", "/tenants", id="acme", tier="pro", budgets={"key_day": {"hard_usd": 5}})
    lives_id, _ = admin.key("small")
    old_id, old = admin.key("acme", limits=limits)
    with admin.client(old) as client:
        client.responses.create(model="lanewise-fast", input="Hi.", max_output_tokens=16)
    admin.do("POST", f"/keys/{old_id}/revoke")

    def kept() -> list[bytes]:
        parts = [redis_client.hkeys(f"lw1:{{acme}}:{part}") for part in ("p:fast", "spend")]
        return [name for names in parts for name in names if old_id.encode() in name]

    assert len({name.partition(b":")[2] for name in kept()}) > 11  # of a pool, and of an account
    name = f"key:{old_id}"
    record = json.loads(redis_client.hget("lw1:{directory}:records", name) or b"")
    record["revoked_s"] -= 31 * 86_400
    redis_client.hset("lw1:{directory}:records", name, json.dumps(record))
    version = redis_client.hincrby("lw1:{directory}:head", "v", 1)
    redis_client.zadd("lw1:{directory}:changed", {name: version})
    deadline = time.monotonic() + 30
    while admin.do("GET", "/keys?tenant=acme")[0]["revoked_at"] != record["revoked_s"]:
        assert time.monotonic() < deadline, "the gateway does not follow"
        time.sleep(0.02)
    admin.do("POST", f"/keys/{lives_id}/rotate")
    assert (kept(), admin.do("GET", "/keys?tenant=acme")) == ([], [])


def test_fast_is_for_pro_only_and_a_new_tier_holds_from_the_next_task_on(admin: Admin) -> None:
    admin.do("POST", "/tenants", id="acme", tier="free")
    _, key = admin.key("acme")
    with admin.client(key) as client, client.responses.connect() as connection:

        def turn(**fields: Any) -> Any:
            connection.response.create(input="Reverse a string.", **fields)
            return next(e for e in connection if e.type in ("response.completed", "error"))

        for refused in (
            turn(model="lanewise-fast"),
            turn(model="auto", metadata={"route": "fast"}),
            turn(model="auto", metadata={"route": "parallel"}),
        ):
            assert refused.error.code == "insufficient_permissions"
        assert turn(model="auto").response.routing["route"] == "deep"
        admin.do("PATCH", "/tenants/acme", tier="pro")
        assert turn(model="lanewise-fast").response.routing["route"] == "fast"
        admin.do("PATCH", "/tenants/acme", limits={"fast": {"requests_per_min": 0}})
        assert turn(model="lanewise-fast").error.code == "rate_limit_exceeded"
        admin.do("PATCH", "/tenants/acme", limits=None, access=["deep"])
        assert turn(model="lanewise-fast").error.code == "insufficient_permissions"


def test_a_tier_is_made_changed_and_not_taken_from_under_its_tenants(admin: Admin) -> None:
    limits = {"requests_per_min": 5, "tokens_per_min": 1000, "max_concurrent": 1}
    admin.do("PUT", "/tiers/trial", limits={"deep": limits}, weight=0.5)
    admin.do("POST", "/tenants", id="acme", tier="trial")
    admin.do("PUT", "/tiers/trial", limits={"fast": limits}, weight=2)
    acme = admin.do("GET", "/tenants/acme")
    assert (set(acme["limits"]), acme["weight"]) == ({"fast"}, 2)
    status, message = admin.refused("DELETE", "/tiers/trial")
    assert (status, "acme" in message) == (409, True)
    admin.do("DELETE", "/tenants/acme")
    admin.do("DELETE", "/tiers/trial")
    assert "trial" not in {tier["name"] for tier in admin.do("GET", "/tiers")}


def test_a_change_that_landed_without_a_word_is_no_conflict(
    admin: Admin, redis_client: "redis.Redis[bytes]"
) -> None:
    admin.do("POST", "/tenants", id="acme", tier="pro")
    tag = "lw1:{directory}:"
    record = json.loads(redis_client.hget(f"{tag}records", "tenant:acme") or b"")
    redis_client.hset(f"{tag}records", "tenant:acme", json.dumps(record | {"tier": "free"}))
    version = redis_client.hincrby(f"{tag}head", "v", 1)
    redis_client.zadd(f"{tag}changed", {"tenant:acme": version})
    assert admin.do("PATCH", "/tenants/acme", weight=3)["tier"] == "free"


def test_a_tenant_is_made_again_as_it_was_until_it_has_a_key(
    admin: Admin, redis_client: "redis.Redis[bytes]"
) -> None:
    tag = "lw1:{directory}:"
    landed = {"id": "acme", "tier": "pro", "weight": 3, "created_s": 5}
    redis_client.hset(f"{tag}records", "tenant:acme", json.dumps(landed))  # and its reply was lost
    version = redis_client.hincrby(f"{tag}head", "v", 1)
    redis_client.zadd(f"{tag}changed", {"tenant:acme": version})
    asked = {"id": "acme", "tier": "pro", "weight": 3}
    for _ in range(2):
        assert admin.do("POST", "/tenants", **asked)["created_at"] == 5
    for other in ({"tier": "free"}, {"weight": None}, {"access": ["deep"]}):
        assert admin.refused("POST", "/tenants", **asked | other)[0] == 409
    key_id, _ = admin.key("acme")
    assert admin.refused("POST", "/tenants", **asked)[0] == 409, "it is somebody's by now"
    admin.do("POST", f"/keys/{key_id}/revoke")
    assert admin.refused("POST", "/tenants", **asked)[0] == 409


def test_keys_of_the_configuration_count_as_active(admin: Admin) -> None:
    def num_active() -> int:
        found: int = admin.do("GET", "/tenants/small")["active_keys"]
        return found

    num_before = num_active()  # the configured one, and those of other tests
    assert num_before >= 1
    key_id, _ = admin.key("small")
    assert num_active() == num_before + 1
    admin.do("POST", f"/keys/{key_id}/revoke")
    assert num_active() == num_before


REFUSED = [
    ("POST", "/tenants", {"id": "small", "tier": "pro"}, 409),  # configured
    ("POST", "/tenants", {"id": "x", "tier": "gold"}, 400),
    ("POST", "/tenants", {"id": "X{}", "tier": "pro"}, 400),
    ("POST", "/tenants", {"id": "x", "tier": "pro", "limits": {"slow": {}}}, 400),
    ("POST", "/tenants", {"id": "x", "tier": "pro", "limits": {"fast": {"rpm": 1}}}, 400),
    ("POST", "/tenants", {"id": "x", "tier": "pro", "colour": "red"}, 400),
    ("PATCH", "/tenants/small", {"tier": "pro"}, 409),
    ("PATCH", "/tenants/nobody", {"tier": "pro"}, 404),
    ("DELETE", "/tenants/small", {}, 409),
    ("POST", "/keys", {"tenant": "nobody"}, 404),
    ("POST", "/keys", {"tenant": "small", "expires_in_s": 0}, 400),
    ("POST", "/keys/nokey/revoke", {}, 404),
    ("DELETE", "/tiers/pro", {}, 404),
    ("PUT", "/tiers/x", {"limits": {"fast": {"requests_per_min": 1}}}, 400),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), REFUSED)
def test_refused(admin: Admin, method: str, path: str, body: dict[str, Any], status: int) -> None:
    assert admin.refused(method, path, **body)[0] == status


def test_no_key_is_found_in_logs_metrics_or_redis(
    admin: Admin, redis_client: "redis.Redis[bytes]"
) -> None:
    _, key = admin.key("small", name="canary")
    secret = key.rpartition("_")[2]
    with admin.client(key) as client:
        client.models.list()
    for wrong in (key[:-1], key[:-1] + ("a" if key[-1] != "a" else "b"), f"Bearer {key}"):
        status, answer = ask(admin.gateway, "GET", "/v1/models", key=wrong)
        assert status == 401
        assert secret[:20] not in json.dumps(answer)
    _, metrics = ask_text(admin.gateway, "/metrics")
    texts = [admin.gateway.log, metrics]
    for name in redis_client.keys("lw1:{directory}*"):
        texts += [str(redis_client.dump(name)), name.decode()]
    for text in texts:
        assert secret[:20] not in text


def ask_text(gateway: GatewayProcess, path: str) -> tuple[int, str]:
    """Returns a page as text."""
    with urllib.request.urlopen(gateway.url + path) as answer:
        return answer.status, answer.read().decode()


def test_one_tenant_never_finds_what_is_another_s(admin: Admin) -> None:
    for tenant in ("acme", "beta"):
        admin.do("POST", "/tenants", id=tenant, tier="enterprise")
    with (
        admin.client(admin.key("acme")[1]) as acme,
        admin.client(admin.key("beta")[1]) as beta,
    ):
        mine = acme.responses.create(model="auto", input="The code word is opal-2.").id
        running = acme.responses.create(**LONG, background=True).id
        for response_id in (mine, running, "resp_" + "0" * 48):
            continued = {"input": "What?", "model": "auto", "previous_response_id": response_id}
            answers: list[Any] = []
            for question, arguments in (
                (beta.responses.retrieve, {"response_id": response_id}),
                (beta.responses.delete, {"response_id": response_id}),
                (beta.responses.cancel, {"response_id": response_id}),
                (beta.responses.input_items.list, {"response_id": response_id}),
                (beta.responses.create, continued),
            ):
                with pytest.raises(openai.APIStatusError) as caught:
                    question(**arguments)
                answers.append(caught.value.code)
            assert answers == ["response_not_found"] * 4 + ["previous_response_not_found"]
        assert acme.responses.retrieve(mine).id == mine
        acme.responses.cancel(running)


PLANTED = "xyzzy-plugh-{}"


def traces(client: Any, word: str) -> list[str]:
    """Returns the keys of all of Redis whose name or value has a word."""
    found = []
    for key in client.scan_iter(count=1_000):
        content = key + (client.dump(key) or b"")
        if client.type(key) == b"string":
            content += client.get(key) or b""  # a dump may be compressed
        if word.encode() in content:
            found.append(key.decode())
    return found


def use_all(admin: Admin, key: str, word: str) -> list[Any]:
    """Makes responses over HTTP and a socket that ask to be stored, with a word in each."""
    with admin.client(key) as client, client.responses.connect() as connection:
        whole = client.responses.create(model="lanewise-fast", input=f"Hi {word}.", store=True)
        connection.response.create(model="lanewise-fast", input=f"Hi {word}.", store=True)
        last = next(event for event in connection if event.type == "response.completed")
        return [whole, last.response]


def test_what_is_stored_of_a_tenant_is_erased(
    admin: Admin, redis_client: "redis.Redis[bytes]"
) -> None:
    for tenant in ("acme", "other"):
        admin.do("POST", "/tenants", id=tenant, tier="enterprise")
    (_, key), (_, others) = admin.key("acme"), admin.key("other")
    made = use_all(admin, key, PLANTED.format("own"))
    (kept, _) = use_all(admin, others, PLANTED.format("other"))
    with admin.client(key) as client:
        body = {"success": True}
        client.post(f"/responses/{made[0].id}/feedback", body=body, cast_to=object)
        assert traces(redis_client, PLANTED.format("own"))
        assert admin.do("DELETE", "/tenants/acme/data")["keys"] >= 3
        assert not traces(redis_client, PLANTED.format("own"))
        left = {name.rpartition("}:")[2] for name in traces(redis_client, "{acme}")}
        assert not [name for name in left if name.startswith(("r:", "stored", "bytes"))], left
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(made[0].id)
        with pytest.raises(openai.NotFoundError):
            client.post(f"/responses/{made[0].id}/feedback", body=body, cast_to=object)
    with admin.client(others) as client:
        assert client.responses.retrieve(kept.id).id == kept.id
    assert admin.do("GET", "/audit?limit=1")[0]["action"] == "tenants.erase"
    assert admin.do("DELETE", "/tenants/acme/data")["keys"] == 0


def test_what_a_deleted_tenant_left_is_erased(
    admin: Admin, redis_client: "redis.Redis[bytes]"
) -> None:
    admin.do("POST", "/tenants", id="acme", tier="enterprise")
    use_all(admin, admin.key("acme")[1], PLANTED.format("left"))
    admin.do("DELETE", "/tenants/acme")
    assert traces(redis_client, PLANTED.format("left"))
    assert admin.do("DELETE", "/tenants/acme/data")["keys"] > 0
    assert not traces(redis_client, PLANTED.format("left"))


def test_a_tenant_made_anew_finds_nothing_of_a_deleted_one_unasked(admin: Admin) -> None:
    admin.do("POST", "/tenants", id="acme", tier="enterprise")
    made = use_all(admin, admin.key("acme")[1], "word")[0]
    admin.do("DELETE", "/tenants/acme")
    status, message = admin.refused("POST", "/tenants", id="acme", tier="enterprise")
    assert (status, "lanewise tenants erase acme" in message) == (409, True), message
    assert admin.refused("GET", "/tenants/acme")[0] == 404

    admin.do("POST", "/tenants", id="acme", tier="enterprise", keep_data=True)
    with admin.client(admin.key("acme")[1]) as client:
        assert client.responses.retrieve(made.id).id == made.id
    admin.do("DELETE", "/tenants/acme")
    admin.do("DELETE", "/tenants/acme/data")
    admin.do("POST", "/tenants", id="acme", tier="enterprise")
    with admin.client(admin.key("acme")[1]) as client, pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_a_new_tenant_has_no_answer_kept_for_an_earlier_ones_idempotency_key(admin: Admin) -> None:
    admin.do("POST", "/tenants", id="acme", tier="enterprise")
    with admin.client(admin.key("acme")[1]) as client:
        client.responses.create(
            model="lanewise-fast",
            input="Hi.",
            store=False,
            extra_headers={"idempotency-key": "once"},
        )
    admin.do("DELETE", "/tenants/acme")
    assert admin.refused("POST", "/tenants", id="acme", tier="enterprise")[0] == 409
    admin.do("DELETE", "/tenants/acme/data")


def test_a_tenant_that_never_was_is_not_erased(admin: Admin) -> None:
    before = admin.do("GET", "/audit?limit=1")
    status, message = admin.refused("DELETE", "/tenants/never-was/data")
    assert (status, "No tenant 'never-was' is known" in message) == (404, True), message
    assert admin.do("GET", "/audit?limit=1") == before


def test_a_tenant_that_stores_never_is_stored_nowhere(
    admin: Admin, redis_client: "redis.Redis[bytes]"
) -> None:
    made = admin.do("POST", "/tenants", id="acme", tier="enterprise", store="never")
    assert made["store"] == "never"
    _, key = admin.key("acme")
    word = PLANTED.format("never")
    for response in use_all(admin, key, word):
        assert response.store is False, "taken as `store: false`, and said so"
        assert word in json.dumps(response.model_dump()) or response.output_text
    assert not traces(redis_client, word)
    with admin.client(key) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(model="lanewise-fast", input="Hi.", background=True)
        assert "this tenant may not" in caught.value.message
        admin.do("PATCH", "/tenants/acme", store="asked")
        assert client.responses.create(model="lanewise-fast", input="Hi.").store is True
