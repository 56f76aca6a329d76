"""`lanewise init` writes a configuration for the engines there are, and tries them.

This is an edge.
"""

import argparse
import asyncio
import os
import re
import secrets
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from backends.contract import BackendGroup
from gateway.cli.command import Command, argument
from gateway.cli.output import show
from gateway.config.command_error import CommandError
from gateway.config.config import Config, load_config
from gateway.config.http_address import http_url
from gateway.doctor.engines import ask_engine
from gateway.doctor.findings import EngineAnswer, engine_finding
from gateway.setup.configuration import EngineChoice, configuration
from gateway.setup.found import (
    NotServedError,
    ServedModel,
    found_keys,
    found_servers,
    is_free,
    served_models,
)
from gateway.setup.providers import BY_NAME, PROVIDERS, SIMULATED, Provider
from gateway.setup.snippets import snippets

DEFAULT_PATH = "lanewise.toml"
PORTS = (8080, 8090, 8091, 8092)  # the first that is free: llama.cpp's own is 8080, too
LIST_TIMEOUT_S = 10.0
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
GROUPS: tuple[BackendGroup, ...] = ("fast", "deep")

Servers = list[tuple[Provider, tuple[ServedModel, ...]]]


def _init(arguments: argparse.Namespace) -> int:
    path = Path(arguments.output)
    if path.exists() and not arguments.force:
        raise CommandError(f"{path} exists: --force replaces it, --output FILE writes another")
    asks = not arguments.yes and sys.stdin.isatty() and not arguments.json
    if not asks and not arguments.yes and not (arguments.fast and arguments.deep):
        raise CommandError(
            "nobody can be asked here: give --fast and --deep, or --yes for what is found"
        )
    servers, keys = found_servers(), found_keys(os.environ)
    choices = []
    for group in GROUPS:
        best = _best(group, keys, servers)
        name = getattr(arguments, group) or (_ask(group, best, keys, servers) if asks else best)
        choices.append(_choice(arguments, group, name, servers, asks=asks))
    key, admin_key = (f"sk-{secrets.token_urlsafe(32)}" for _ in range(2))
    port = arguments.port or next((one for one in PORTS if is_free("127.0.0.1", one)), PORTS[0])
    text = configuration(
        choices,
        port=port,
        key=key,
        admin_key=admin_key,
        path=str(path),
        date=time.strftime("%Y-%m-%d"),
    )
    config = load_config(text.encode(), {}, name=str(path))  # what is written is valid
    _write(path, text, replaces=arguments.force)
    answers = [] if arguments.no_check else asyncio.run(_try_engines(config))
    return _tell(arguments, config, key, answers)


def _best(group: BackendGroup, keys: list[Provider], servers: Servers) -> str:
    """Returns what to use if nobody says: what is found and serves this group well, else both."""
    there = [*keys, *(provider for provider, _ in servers)]
    ranked = sorted(there, key=lambda provider: provider.groups.index(group))
    return ranked[0].name if ranked else SIMULATED


def _ask(group: BackendGroup, best: str, keys: list[Provider], servers: Servers) -> str:
    """Asks which engine to use; returns its name."""
    ranked = sorted(PROVIDERS, key=lambda provider: provider.groups.index(group))
    names = [*(provider.name for provider in ranked), SIMULATED]
    print(f"\nWhich engine is the {group} one?")
    for number, name in enumerate(names, start=1):
        provider = BY_NAME.get(name)
        there = ""
        if provider in keys:
            there = f"{provider.key_env} is set"
        elif provider in [server for server, _ in servers]:
            there = f"answers at {provider.base_url}" if provider else ""
        title = "simulated, no account needed" if provider is None else provider.title
        print(f"  {number:>2}  {title:44}  {there}".rstrip())
    while True:
        given = _question("number or name", best)
        if given in names:
            return given
        if given.isdecimal() and 1 <= int(given) <= len(names):
            return names[int(given) - 1]
        print(f"expected 1 to {len(names)}, or one of {', '.join(names)}")


def _question(words: str, default: str) -> str:
    try:
        return input(f"{words} [{default}]: ").strip() or default
    except EOFError:
        raise CommandError("nothing is written: the questions were not answered") from None


def _choice(
    arguments: argparse.Namespace,
    group: BackendGroup,
    name: str,
    servers: Servers,
    *,
    asks: bool,
) -> EngineChoice:
    """Completes what is said of a group's engine by what is found, asked, or usual."""
    given = {what: getattr(arguments, f"{group}_{what}") for what in ("url", "model", "key_env")}
    if name == SIMULATED:
        for what in [what for what, said in given.items() if said]:
            flag = f"--{group}-{what.replace('_', '-')}"
            raise CommandError(f"{flag}: the {group} engine is simulated: --{group} NAME names one")
        return EngineChoice(group=group)
    if given["key_env"] and not _VARIABLE.fullmatch(given["key_env"]):  # not quoted: maybe a key
        raise CommandError(
            f"--{group}-key-env: expected the name of an environment variable, not a key"
        )
    provider = BY_NAME[name]
    base_url = given["url"] or provider.base_url
    if not base_url and asks:
        base_url = _question("its address, as https://RESOURCE.openai.azure.com/openai/v1", "")
    if not base_url:
        raise CommandError(f"--{group}-url: {provider.title} needs the address of your resource")
    if not provider.is_local and not {"/", ":"} & set(base_url):
        base_url = f"https://{base_url}"  # a name alone of a service: its key goes there
    base_url = http_url(base_url, f"--{group}-url")
    if base_url.count("/") == 2:
        base_url += provider.path
    key_env = given["key_env"] or provider.key_env
    if not provider.needs_key and not given["key_env"] and not os.environ.get(key_env or ""):
        key_env = None
    models = {server.name: models for server, models in servers}.get(name, ())
    if provider.is_local and (not models or given["url"]):
        models = _listed(group, provider, base_url, key_env, must=given["model"] is None)
    model = given["model"] or provider.model or (models[0].id if models else "")
    if asks and given["model"] is None:
        model = _question(f"its model on {provider.title}", model or "none")
    if not model:
        raise CommandError(f"--{group}-model: {provider.title} needs the name of your deployment")
    served = next((one for one in models if one.id == model), None)
    return EngineChoice(
        group=group,
        provider=provider,
        base_url=base_url,
        upstream_model=model,
        key_env=key_env,
        window_tokens=None if served is None else served.window_tokens,
    )


def _listed(
    group: BackendGroup, provider: Provider, base_url: str, key_env: str | None, *, must: bool
) -> tuple[ServedModel, ...]:
    """Asks a local server for its models; without an answer they must not be needed."""
    key = os.environ.get(key_env) if key_env else None
    try:
        return served_models(base_url, key, timeout_s=LIST_TIMEOUT_S)
    except NotServedError as error:
        if not must:
            return ()
        raise CommandError(
            f"--{group} {provider.name}: no list of models at {base_url}/models ({error}): start "
            f"it, name its address with --{group}-url, or its model with --{group}-model"
        ) from None


def _write(path: Path, text: str, *, replaces: bool) -> None:
    """Writes the file for its owner alone; another's is not replaced without being told."""
    written = path.with_name(f".{path.name}.{os.getpid()}") if replaces else path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        if replaces:
            written.replace(path)
    except OSError as error:
        raise CommandError(f"--output {path}: {error.strerror}") from error


async def _try_engines(config: Config) -> list[EngineAnswer]:
    """Sends each engine one request; a simulated one says nothing new."""
    real = [backend for backend in config.backends if hasattr(backend.options, "base_url")]
    return list(await asyncio.gather(*map(ask_engine, real)))


def _tell(
    arguments: argparse.Namespace, config: Config, key: str, answers: list[EngineAnswer]
) -> int:
    """Says what was written, how the engines answered, and what clients need."""
    path, port = arguments.output, config.server.port
    base_url = f"http://127.0.0.1:{port}"
    findings = [engine_finding(answer) for answer in answers]
    texts = snippets(base_url, key)
    lines = [f"Wrote {path}, readable by you alone.", *(one.line for one in findings), ""]
    program = "lanewise" if shutil.which("lanewise") else os.path.relpath(sys.argv[0])
    lines += [f"Serve it:  {program} serve --config {shlex.quote(path)}"]
    lines += [f"Check it:  {program} doctor --config {shlex.quote(path)}"]
    for client, text in texts.items():
        lines += ["", f"--- {client}", text.rstrip()]
    answer: dict[str, Any] = {
        "path": path,
        "base_url": base_url,
        "key": key,
        "engines": [one.view() for one in findings],
        "snippets": texts,
    }
    failed = any(one.level == "fail" for one in findings)
    return show(arguments, answer, "\n".join(lines), status=1 if failed else 0)


def _engine_arguments(group: BackendGroup) -> tuple[Any, ...]:
    return (
        argument(
            f"--{group}",
            choices=(*BY_NAME, SIMULATED),
            metavar="NAME",
            help=f"the {group} engine: {', '.join(BY_NAME)} or {SIMULATED}",
        ),
        argument(f"--{group}-url", metavar="URL", help="its address, if not the usual one"),
        argument(f"--{group}-model", metavar="MODEL", help="its model, by the server's own name"),
        argument(f"--{group}-key-env", metavar="NAME", help="the variable that holds its key"),
    )


COMMAND = Command(
    "lanewise init --fast cerebras --deep openai",
    (
        *(one for group in GROUPS for one in _engine_arguments(group)),
        argument("--output", default=DEFAULT_PATH, metavar="FILE", help="default: %(default)s"),
        argument("--port", type=int, help="of the gateway (default: 8080, if it is free)"),
        argument("--yes", action="store_true", help="ask nothing: take what is found"),
        argument("--force", action="store_true", help="replace the file"),
        argument("--no-check", action="store_true", help="do not send the engines a request"),
        argument("--json", action="store_true", help="print the answer as JSON; asks nothing"),
    ),
    run=_init,
    description="""\
Write a configuration for a fast and a deep engine: by flags, by questions, or with --yes from the
keys in the environment and the servers on their usual ports. Keys of engines stay in the
environment; the file names the variable. Each engine is sent one short request.
""",
    note="exit status: 0 written, each engine answered; 1 written, one did not; 2 not written",
)
