"""Tests what clients are given to copy: it parses, and holds the address and the key."""

import ast
import json
import shlex
import tomllib

from gateway.setup.snippets import snippets

TEXTS = snippets("http://127.0.0.1:8090", "sk-mine")


def test_each_of_five_clients_is_told_where_and_by_which_key() -> None:
    assert len(TEXTS) == 5
    for text in TEXTS.values():
        assert "http://127.0.0.1:8090" in text
        assert "sk-mine" in text


def test_they_parse() -> None:
    ast.parse(TEXTS["openai-python"])
    provider = tomllib.loads(TEXTS["codex"])["model_providers"]["lanewise"]
    assert provider["base_url"] == "http://127.0.0.1:8090/v1"
    words = shlex.split(TEXTS["curl"])
    assert json.loads(words[words.index("-d") + 1])["model"] == "auto"
    assert shlex.split(TEXTS["claude-code"])[0] == "export"
