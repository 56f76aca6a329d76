"""Tests the configuration: defaults, precedence, and errors that name the field and help."""

import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from backends.simulated.gpu import GpuBackendConfig
from backends.simulated.wafer import WaferBackendConfig
from gateway.config.command_error import CommandError
from gateway.config.config import Config, admin_keys, load_config, peppers
from gateway.config.development import DEVELOPMENT_KEY
from gateway.config.keys import Peppers
from gateway.config.sections import (
    Address,
    ConfigError,
    ServerConfig,
    admin_address,
    is_loopback,
    masked_url,
)

ACME = b"""
[[tenants]]
id = "acme"
keys = ["sk-acme-1234"]
tier = "gold"
[tenants.limits.fast]
requests_per_min = 1
tokens_per_min = 2
max_concurrent = 3
"""
STRONG = ACME.replace(b"sk-acme-1234", b"sk-acme-9f3a7c21d8e4b650")


def test_nothing_configured_is_the_development_setup() -> None:
    config = load_config(b"", {})
    assert config == Config()
    assert config.server.host == "127.0.0.1"
    assert [key for tenant in config.tenants for key in tenant.keys] == [DEVELOPMENT_KEY]
    assert {backend.name for backend in config.backends} == {"wafer", "gpu"}


def test_the_budget_of_redis() -> None:
    far = b"[redis]\nbudget_ms = 200"
    assert load_config(b"", {}).redis.budget_ms == 40
    assert load_config(far, {}).redis.budget_ms == 200
    assert load_config(far, {"LANEWISE_REDIS_BUDGET_MS": "300"}).redis.budget_ms == 300
    for told in ("0", "soon", "9999999"):
        with pytest.raises(ConfigError, match="LANEWISE_REDIS_BUDGET_MS"):
            load_config(far, {"LANEWISE_REDIS_BUDGET_MS": told})


def test_a_tenant() -> None:
    (configured,) = load_config(ACME, {}).tenants
    tenant = configured.tenant()
    assert (tenant.id, tenant.tier, set(tenant.limits)) == ("acme", "gold", {"fast"})
    assert tenant.limits["fast"].max_concurrent == 3


def test_backends_are_told_by_their_kind() -> None:
    toml = b'[[backends]]\nkind = "wafer"\nname = "w2"\n[[backends]]\nkind = "gpu"'
    first, second = load_config(toml, {}).backends
    assert isinstance(first, WaferBackendConfig)
    assert first.name == "w2"
    assert isinstance(second, GpuBackendConfig)


FILE = b'[redis]\nurl = "redis://file"\n[server]\nport = 1\nhost = "::1"'
ENVIRON = {"LANEWISE_REDIS_URL": "redis://environ"}

# file, environment, arguments, redis url, host, port
PRECEDENCE: list[tuple[bytes, dict[str, str], dict[str, Any], str | None, str, int]] = [
    (b"", {}, {}, None, "127.0.0.1", 8080),
    (FILE, {}, {}, "redis://file", "::1", 1),
    (FILE, ENVIRON, {}, "redis://environ", "::1", 1),
    (
        FILE,
        ENVIRON,
        {"redis_url": "redis://argument", "host": "localhost", "port": 0},
        "redis://argument",
        "localhost",
        0,
    ),
]


@pytest.mark.parametrize(("toml", "environ", "arguments", "url", "host", "port"), PRECEDENCE)
def test_the_last_word_wins(
    toml: bytes,
    environ: dict[str, str],
    arguments: dict[str, Any],
    url: str | None,
    host: str,
    port: int,
) -> None:
    config = load_config(toml, environ, **arguments)
    assert (config.redis.url, config.server.host, config.server.port) == (url, host, port)


SECOND = b"""
[[tenants]]
id = "%s"
keys = ["%s"]
limits = {}
"""

ADMIN = b"""
[[admin.keys]]
name = "%s"
key = "%s"
"""

# file, arguments, what the message must hold
ERRORS: list[tuple[bytes, dict[str, Any], tuple[str, ...]]] = [
    (b"[server", {}, ("configuration",)),
    (b"\xff", {}, ("configuration",)),
    (b"[server]\nprot = 1", {}, ("prot",)),
    (b"[server]\nport = 70000", {}, ("65535", "server.port")),
    (b"", {"port": 70000}, ("65535", "70000")),
    (b"[server]\nport = '80'", {}, ("server.port",)),
    (b"[server]\nflush_interval_ms = -1", {}, ("flush_interval_ms",)),
    (b"[[backends]]\nkind = 'tpu'", {}, ("tpu",)),
    (b"[[backends]]\nkind = 'gpu'\n[[backends]]\nkind = 'gpu'", {}, ("unique", "gpu")),
    (b"backends = []", {}, ("at least one",)),
    (b"tenants = []", {}, ("at least one",)),
    (ACME.replace(b"sk-acme-1234", b"short"), {}, ("tenants[0].keys[0]",)),
    (ACME.replace(b"sk-acme-1234", b" " * 9), {}, ("'acme'", "no client can send")),
    (ACME.replace(b"sk-acme-1234", b"sk-acme-1234 "), {}, ("'acme'", "no client can send")),
    (ACME.replace(b"sk-acme-1234", b"sk-acme\\n1234"), {}, ("'acme'", "no client can send")),
    (ACME.replace(b"sk-acme-1234", "sk-schlüssel".encode()), {}, ("no client can send",)),
    (ACME + ADMIN % (b"a", b"sk-of\\tadmin"), {}, ("admin.keys: 'a'", "no client can send")),
    (ACME.replace(b"limits.fast", b"limits.warp"), {}, ("warp",)),
    (ACME.replace(b'"acme"', b'"Acme Inc"'), {}, ("Acme Inc", "a-z")),
    (ACME.replace(b'"acme"', b'"a:b"'), {}, ("a:b",)),
    (ACME.replace(b'"acme"', b'""'), {}, ("1 to 64",)),
    (ACME + SECOND % (b"acme", b"sk-other-1"), {}, ("unique", "acme")),
    (ACME + SECOND % (b"beta", b"sk-acme-1234"), {}, ("same key", "acme", "beta")),
    (b"", {"host": "0.0.0.0"}, ("0.0.0.0", "development key", "127.0.0.1")),
    (b"", {"host": "::"}, ("development key", "LANEWISE_API_KEY")),
    (b"[server]\nhost = 'gateway.example.com'", {}, ("gateway.example.com", "'dev'")),
    (b"", {"admin": "8081"}, ("server.admin_address", "8081", "HOST:PORT")),
    (b"", {"admin": "127.0.0.1:70000"}, ("server.admin_address", "65535", "70000")),
    (STRONG, {"host": "0.0.0.0", "port": 65535}, ("server.admin_address", "65536")),
    (b"", {"admin": "0.0.0.0:8081"}, ("server.admin_address", "development key")),
    (b"", {"redis_url": "banana"}, ("redis.url", "banana", "rediss://", "unix://")),
    (b"[redis]\nurl = 'http://localhost:6379'", {}, ("redis.url", "http://localhost:6379")),
    (ACME + ADMIN % (b"a b", b"sk-of-admin"), {}, ("admin.keys", "a b")),
    (ACME + 2 * (ADMIN % (b"a", b"sk-of-admin")), {}, ("admin.keys", "another")),
    (ACME + ADMIN % (b"a", b"sk-acme-1234"), {}, ("admin.keys", "acme", "administer")),
    (
        STRONG + ADMIN % (b"a", b"sk-lanewise-admin-dev"),
        {"host": "0.0.0.0"},
        ("0.0.0.0", "admin.keys: 'a'", "development key"),
    ),
    (ACME, {"host": "0.0.0.0"}, ("0.0.0.0", "'acme'", "shorter than 16", "lanewise keys create")),
    (
        STRONG + b"[auth]\npeppers = 'v1:password-password-password-password'",
        {"host": "0.0.0.0"},
        ("auth.peppers", "'v1'", "easily guessed"),
    ),
    (b"", {"redis_url": "redis://localhost:port"}, ("redis.url", "localhost:port")),
    (b"", {"redis_url": "redis://localhost?db=two"}, ("redis.url", "db=two")),
    (b"", {"redis_url": "redis://me:sk-acme-1234/56@h:x"}, ("redis.url", "***@h:x")),
]


@pytest.mark.parametrize(("toml", "arguments", "words"), ERRORS)
def test_errors(toml: bytes, arguments: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(toml, {}, **arguments)
    for word in words:
        assert word in str(caught.value)
    assert "sk-acme-1234" not in str(caught.value), "keys are not for logs"


TWO_BACKENDS = b"""
[[backends]]
kind = "gpu"
[[backends]]
kind = "upstream"
"""

LIMITS = b"""
[[tenants]]
id = "a"
limits.fast = {requests_per_min=%d, tokens_per_min=9, max_concurrent=9}
"""

# file, arguments, how the message begins and what else it says
PLACES: list[tuple[bytes, dict[str, Any], str, tuple[str, ...]]] = [
    (b"[server", {}, "lw.toml:1:8: not TOML", ()),
    (b"\n[server]\nprot = 1", {}, "lw.toml:3:1: server.prot: ", ("mean 'port'", "host, port,")),
    (b"[sever]", {}, "lw.toml:1:2: sever: unknown field", ("did you mean 'server'?", "tenants")),
    (b"[server]\nport = 70000", {}, "lw.toml:2:8: server.port: ", ("65535", "got 70000")),
    # Workers get their configuration as JSON, which would make null of it.
    (b"[server]\ndrain_timeout_s = inf", {}, "lw.toml:2:19: server.drain", ("finite", "got inf")),
    (
        b"[[backends]]\nkind = 'link'\nname = 'a'\n[backends.options]\nping_interval_s = 0",
        {},
        "lw.toml:5:19: backends[0].options.ping_interval_s: expected a number > 0.0, got 0",
        (),
    ),
    (
        b"[[backends]]\nkind = 'wafr'",
        {},
        "lw.toml:2:8: backends[0].kind: expected one of 'wafer', 'gpu', 'link', 'upstream', got",
        ("'wafr'", "did you mean 'wafer'?"),
    ),
    (b"[[backends]]\nname = 'a'", {}, "lw.toml:1:3: backends[0]: the field 'kind'", ("'gpu'",)),
    (b"[[backends]]\nkind = 3", {}, "lw.toml:2:8: backends[0].kind: expected one of", ("got 3",)),
    (TWO_BACKENDS, {}, "lw.toml:4:3: backends[1]: the field 'options' is missing", ()),
    (
        b"[[backends]]\nkind = 'gpu'\n[backends.options]\nmax_num_seq = 1",
        {},
        "lw.toml:4:1: backends[0].options.max_num_seq: unknown field",
        ("did you mean 'max_num_seqs'?",),
    ),
    (ACME.replace(b"sk-acme-1234", b"short"), {}, "lw.toml:", ("length >= 8, got 5 characters",)),
    (b"[[tenants]]\nid = 'a'\nkeys = 'sk-acme-1234'", {}, "lw.toml:3:8: tenants[0].keys", ()),
    (
        b"[[tenants]]\nid = 'a'\ntier = 'enterprize'",
        {},
        "lw.toml:3:8: tenants: 'a' has no limits",
        ("did you mean 'enterprise'?",),
    ),
    (b"[[tenants]]\nid = 'A B'", {}, "lw.toml:2:6: tenants: id 'A B'", ()),
    # A limit that the pools cannot count would fail every tenant's admission with this one's.
    (LIMITS % -5, {}, "lw.toml:4:33: tenants: 'a': limits.fast.requests_per_min: ", ("got -5",)),
    (LIMITS % (10**19), {}, "lw.toml:4:33: tenants: 'a': limits.fast.", ("0 to 1000000000000",)),
    (b"[redis]\nurl = 'http://h'", {}, "lw.toml:2:7: redis.url", ()),
    (
        b"[[relays]]\npath = 'embeddings'\nmodel = 'm'\nbase_url = 'h'",
        {},
        "lw.toml:4:12: relays[0].base_url: expected http(s)://HOST[:PORT]/v1, got 'h'",
        (),
    ),
    (
        b"[[relays]]\npath = 'embedding'\nmodel = 'm'\nbase_url = 'http://h'",
        {},
        "lw.toml:2:8: relays[0].path: expected one of 'embeddings', 'completions'",
        ("did you mean 'embeddings'?",),
    ),
    (b"[redis]\nurl = 'redis://h'", {"redis_url": "http://h"}, "redis.url", ()),
    (b"[server]\nport = 80", {"port": 70000}, "server.port", ()),
    (b"[server]\ntls_key_path = 'k'", {}, "lw.toml:2:16: server.tls_cert_path", ()),
    (b"[auth]\npeppers = 'x'", {}, "lw.toml:2:11: auth.peppers", ()),
    # Without a scheme nothing would be sent, and each batch of traces lost.
    (b"[tracing]\nendpoint = 'h:4318'", {}, "lw.toml:2:12: tracing.endpoint: ", ("https?://",)),
]


@pytest.mark.parametrize(("toml", "arguments", "begin", "words"), PLACES)
def test_an_error_names_the_place_in_the_file(
    toml: bytes, arguments: dict[str, Any], begin: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(toml, {}, name="lw.toml", **arguments)
    message = str(caught.value)
    assert message.startswith(begin), message
    for word in words:
        assert word in message
    assert "sk-acme-1234" not in message, "keys are not for logs"


def test_an_error_lists_all_that_is_wrong() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(b"[server]\nport = 'x'\nhost = 3\n[redis]\nulr = ''", {}, name="lw.toml")
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == ["lw.toml:2:8", "lw.toml:3:8", "lw.toml:5:1"]


def test_production_names_its_redis() -> None:
    production = {"LANEWISE_ENV": "production"}
    with pytest.raises(ConfigError, match="LANEWISE_REDIS_URL"):
        load_config(b"", production)
    assert load_config(FILE, production).redis.url == "redis://file"
    assert load_config(b"", production | ENVIRON).redis.url == "redis://environ"
    assert load_config(b"", {"LANEWISE_ENV": "staging"}).redis.url is None


# URL, as the log may have it
MASKED = [
    ("redis://localhost:6379/0", "redis://localhost:6379/0"),
    ("redis://:secret@localhost", "redis://***@localhost"),
    ("rediss://me:se/cr@t@host:1/2", "rediss://***@host:1/2"),
    ("unix:///run/redis.sock?password=secret&db=1", "unix:///run/redis.sock?password=***&db=1"),
]


@pytest.mark.parametrize(("url", "masked"), MASKED)
def test_passwords_are_not_for_logs(url: str, masked: str) -> None:
    assert masked_url(url) == masked


def test_strong_keys_may_be_public() -> None:
    assert load_config(STRONG, {}, host="0.0.0.0").server.host == "0.0.0.0"


def test_a_public_gateway_without_tenants_takes_its_key_from_the_environment() -> None:
    config = load_config(b"", {"LANEWISE_API_KEY": "sk-8c1f0e7ad93b4256"}, host="0.0.0.0")
    assert [(tenant.id, tenant.keys) for tenant in config.tenants] == [
        ("default", ("sk-8c1f0e7ad93b4256",))
    ]
    assert admin_keys(config) == (), "and no development admin key"
    assert peppers(config) == Peppers(), "nor the development pepper"
    with pytest.raises(ConfigError, match="'default' has a key that is easily guessed"):
        load_config(b"", {"LANEWISE_API_KEY": "password-password"}, host="0.0.0.0")


def test_secrets_may_stand_in_files(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("sk-8c1f0e7ad93b4256\n")
    config = load_config(b"", {"LANEWISE_API_KEY_FILE": str(path)}, host="0.0.0.0")
    assert config.tenants[0].keys == ("sk-8c1f0e7ad93b4256",)
    both = {"LANEWISE_API_KEY_FILE": str(path), "LANEWISE_API_KEY": "sk-other"}
    with pytest.raises(CommandError, match="not both"):
        load_config(b"", both, host="0.0.0.0")


def test_a_first_key_is_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "state" / "key"
    toml = f"[auth]\nkey_path = '{path}'".encode()
    load_config(toml, {}, host="0.0.0.0")
    assert not path.exists(), "who only checks makes none"
    first = load_config(toml, {}, host="0.0.0.0", makes_key=True)
    (key,) = first.tenants[0].keys
    assert path.read_text().strip() == key
    assert path.stat().st_mode & 0o077 == 0
    assert key in capsys.readouterr().out
    assert load_config(toml, {}, host="0.0.0.0", makes_key=True) == first
    assert key not in capsys.readouterr().out
    with pytest.raises(CommandError, match="key_path"):
        load_config(b"[auth]\nkey_path = '/dev/null/key'", {}, makes_key=True)


@pytest.mark.parametrize("written", ["", "\n", "\ufeff \r\n"])
@pytest.mark.parametrize("variable", ["LANEWISE_API_KEY", "LANEWISE_ADMIN_KEY"])
def test_an_empty_file_is_no_secret(written: str, variable: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(written, encoding="utf-8")
    with pytest.raises(CommandError, match=rf"{variable}_FILE .*key.*: the file is empty"):
        load_config(b"", {f"{variable}_FILE": str(path)})
    # On loopback, such as behind a proxy, the published key would have opened the gateway.
    with pytest.raises(CommandError, match=r"auth\.key_path .*key.*: the file is empty"):
        load_config(f"[auth]\nkey_path = '{path}'".encode(), {}, makes_key=True)


def test_a_key_in_a_file_is_as_long_as_any(tmp_path: Path) -> None:
    path = tmp_path / "key"
    toml = f"[auth]\nkey_path = '{path}'".encode()
    path.write_text("sk-1234\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"auth\.key_path: expected at least 8 characters"):
        load_config(toml, {})
    path.write_text("\ufeffsk-12345\r\n", encoding="utf-8")  # as Windows' editors write it
    assert load_config(toml, {}).tenants[0].keys == ("sk-12345",)


def test_a_first_key_that_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))  # as on a full disk
    try:
        with pytest.raises(CommandError, match="no key can be made there"):
            load_config(f"[auth]\nkey_path = '{path}'".encode(), {}, makes_key=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert not path.exists()


ADMIN_ADDRESSES: list[tuple[str, int, str | None, Address | None]] = [
    ("127.0.0.1", 8080, None, None),
    ("localhost", 8080, None, None),
    ("0.0.0.0", 8080, None, Address("127.0.0.1", 8081)),
    ("::", 0, None, Address("127.0.0.1", 0)),
    ("127.0.0.1", 8080, "127.0.0.1:9000", Address("127.0.0.1", 9000)),
    ("10.0.0.1", 8080, "[::1]:8080", Address("::1", 8080)),
    ("0.0.0.0", 8080, "0.0.0.0:8080", None),  # as asked: all on one port
]


@pytest.mark.parametrize(("host", "port", "configured", "address"), ADMIN_ADDRESSES)
def test_admin_address(
    host: str, port: int, configured: str | None, address: Address | None
) -> None:
    server = ServerConfig(host=host, port=port, admin_address=configured)
    assert admin_address(server) == address


HOSTS = [
    ("127.0.0.1", True),
    ("127.8.9.1", True),
    ("::1", True),
    ("localhost", True),
    ("0.0.0.0", False),
    ("::", False),
    ("192.168.1.4", False),
    ("localhost.example.com", False),
    ("", False),
]


@pytest.mark.parametrize(("host", "private"), HOSTS)
def test_loopback(host: str, private: bool) -> None:
    assert is_loopback(host) is private
