"""Looks for what there is already: keys in the environment, and servers on their usual ports.

This is an edge.
"""

import http.client
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping

import msgspec

from gateway.setup.providers import PROVIDERS, Provider

TIMEOUT_S = 2.0  # of a local server
MAX_LIST_BYTES = 8 << 20  # OpenRouter's list of models has one


class ServedModel(msgspec.Struct, frozen=True):
    """Describes a model as a server lists it."""

    id: str
    owned_by: str = ""
    max_model_len: int | None = None  # vLLM's and SGLang's
    meta: "_Meta | None" = None  # llama.cpp's

    @property
    def window_tokens(self) -> int | None:
        """Returns the window that a request has, where the server says it."""
        return self.max_model_len or (None if self.meta is None else self.meta.n_ctx)


class _Meta(msgspec.Struct, frozen=True):
    n_ctx: int | None = None


class _ModelList(msgspec.Struct, frozen=True):
    data: tuple[ServedModel, ...] = ()


class NotServedError(Exception):
    """A server does not list its models; the message says why."""


def served_models(
    base_url: str, key: str | None = None, *, timeout_s: float
) -> tuple[ServedModel, ...]:
    """Asks a server for its models; raises `NotServedError`."""
    request = urllib.request.Request(f"{base_url.rstrip('/')}/models")
    if key:
        request.add_header("authorization", f"Bearer {key}")
    try:
        # No proxy: the gateway's own client uses none either.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=timeout_s) as answer:
            body = answer.read(MAX_LIST_BYTES)
        return msgspec.json.decode(body, type=_ModelList).data
    except urllib.error.HTTPError as error:
        with error:
            raise NotServedError(f"it answers {error.code}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NotServedError(f"{getattr(error, 'reason', None) or error}") from None


def found_keys(environ: Mapping[str, str]) -> list[Provider]:
    """Returns the services whose key the environment holds."""
    return [one for one in PROVIDERS if one.needs_key and one.key_env and environ.get(one.key_env)]


def found_servers() -> list[tuple[Provider, tuple[ServedModel, ...]]]:
    """Returns the local servers that list models on their usual ports."""
    found = []
    for provider in PROVIDERS:
        if not provider.is_local:
            continue
        try:
            models = served_models(provider.base_url, timeout_s=TIMEOUT_S)
        except NotServedError:
            continue
        if any(model.owned_by == provider.owned_by for model in models):
            found.append((provider, models))
    return found


def is_free(host: str, port: int) -> bool:
    """Says whether a server could listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
