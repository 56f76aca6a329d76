"""Tests several keys of one upstream: in turn, resting where the server refuses or limits them."""

from pathlib import Path

import pytest

from backends.net.server_keys import MAX_KEYS, ServerKeys, read_keys
from backends.upstream.options import UpstreamOptions, check_options


def options(path: Path | None, **more: str) -> UpstreamOptions:
    return UpstreamOptions(
        model="m",
        base_url="http://127.0.0.1:1/v1",
        upstream_model="m",
        group="deep",
        key_file=None if path is None else str(path),
        **more,  # type: ignore[arg-type]
    )


def keys_of(tmp_path: Path, content: str) -> ServerKeys:
    path = tmp_path / "keys"
    path.write_text(content)
    return ServerKeys(options(path))


def test_a_file_is_read_line_by_line(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, "# ours\n one \n\ntwo\none\n")
    assert keys.headers == [{"authorization": "Bearer one"}, {"authorization": "Bearer two"}]


@pytest.mark.parametrize(
    "content", ["", "# none\n", "k\n" * 40_000, "\n".join(map(str, range(300)))]
)
def test_a_file_without_keys_or_with_too_many(tmp_path: Path, content: str) -> None:
    with pytest.raises(ValueError, match=f"expected 1 to {MAX_KEYS} keys"):
        keys_of(tmp_path, content)


def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="No such file"):
        read_keys(options(tmp_path / "none"))
    monkeypatch.delenv("NO_KEY", raising=False)
    with pytest.raises(ValueError, match="NO_KEY is not set"):
        read_keys(options(None, key_env="NO_KEY"))
    assert read_keys(options(None)) == ()
    monkeypatch.setenv("NO_KEY", "sk-\N{HORIZONTAL ELLIPSIS}")
    with pytest.raises(ValueError, match="NO_KEY: a key has characters that are not"):
        read_keys(options(None, key_env="NO_KEY"))
    with pytest.raises(ValueError, match="a key has characters that are not"):
        keys_of(tmp_path, "one\nt\two")
    with pytest.raises(ValueError, match="give one of the two"):
        check_options(options(tmp_path / "none", key_env="NO_KEY"))


def test_in_turn(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, "a\nb\nc")
    assert [keys.take(0) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_one_that_is_refused_or_limited_rests(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, "a\nb\nc")
    assert keys.rest(0, 401, None, 0)
    assert keys.rest(1, 429, 5_000_000, 0)
    assert [keys.take(1) for _ in range(2)] == [2, 2]
    assert not keys.rest(2, 429, None, 1), "all rest"
    assert keys.take(2) == 2, "the first that ends"
    assert keys.take(6_000_000) in (1, 2)
    assert {keys.take(70_000_000) for _ in range(3)} == {0, 1, 2}


def test_one_key_alone_never_rests(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, "a")
    assert not keys.rest(0, 429, None, 0)
    assert keys.take(0) == 0
    assert not keys_of(tmp_path, "a\nb").rest(0, 500, None, 0), "not the key's fault"
