"""The command line: parse arguments, make one call each."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway import __version__
from gateway.admin_client import AdminError
from gateway.config import DEVELOPMENT_KEY, ConfigError, load_config
from gateway.embedded_redis import EmbeddedRedisError
from gateway.engine_command import add_engine
from gateway.eval_command import add_eval, route_batch
from gateway.policy_command import add_policy
from gateway.preview import preview
from gateway.server import serve
from gateway.supervisor import supervise
from gateway.tenant_command import add_access_commands
from gateway.terminal import run as run_terminal
from gateway.usage_command import add_usage


def main(argv: Sequence[str] | None = None) -> int:
    """Run `lanewise`; the process's exit status."""
    arguments = make_parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except (AdminError, ConfigError, EmbeddedRedisError) as error:
        print(f"lanewise: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


def make_parser() -> argparse.ArgumentParser:
    """Every command with its options; each help shows an example."""
    parser = argparse.ArgumentParser(
        prog="lanewise", description="A gateway for fast and deep models side by side."
    )
    parser.add_argument("--version", action="version", version=f"lanewise {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_chat(commands)
    _add_route(commands)
    add_engine(commands)
    add_eval(commands)
    add_access_commands(commands)
    add_usage(commands)
    add_policy(commands)
    return parser


def _add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    text: str,
    example: str,
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=text,
        description=text,
        epilog=f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_serve(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _add_command(
        commands,
        "serve",
        "Start the gateway.",
        "lanewise serve --config lanewise.toml --port 9000",
    )
    parser.add_argument("--config", metavar="FILE", help="TOML; without it, development defaults")
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default 8080; 0: any)")
    parser.add_argument(
        "--redis", metavar="URL", help="redis://, rediss:// or unix:// (default: an embedded Redis)"
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes that share the port (default 1)"
    )
    parser.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    config = load_config(
        _read(arguments.config),
        os.environ,
        host=arguments.host,
        port=arguments.port,
        redis_url=arguments.redis,
        workers=arguments.workers,
    )
    return supervise(config) if config.server.workers > 1 else serve(config)


def _add_chat(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _add_command(
        commands,
        "chat",
        "Talk to a gateway from the terminal; typing while it answers redirects it.",
        'lanewise chat --model auto "Write a haiku about caches."',
    )
    parser.add_argument("prompt", nargs="?", help="ask once and exit; without it, a dialogue")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="the gateway's address")
    parser.add_argument("--model", default="auto", help="a model id (default: auto)")
    parser.add_argument(
        "--key",
        default=os.environ.get("LANEWISE_API_KEY", DEVELOPMENT_KEY),
        help="API key (default: $LANEWISE_API_KEY, else the development key)",
    )
    parser.set_defaults(run=_chat)


def _chat(arguments: argparse.Namespace) -> int:
    return run_terminal(
        url=arguments.url, key=arguments.key, model=arguments.model, prompt=arguments.prompt
    )


def _add_route(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _add_command(
        commands,
        "route",
        "Say where a prompt would go, and why, without running it.",
        'lanewise route "Find the race condition in our lock manager"',
    )
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("prompt", nargs="?", help="the prompt; - reads it from standard input")
    asked.add_argument(
        "--batch", metavar="FILE", help='JSONL of {"id", "text"}, or -: one decision a line'
    )
    parser.add_argument("--config", metavar="FILE", help="TOML; without it, development defaults")
    parser.add_argument("--model", default="auto", help="a model id (default: auto)")
    parser.add_argument("--tenant", help="decide for this tenant (default: the first)")
    parser.add_argument("--json", action="store_true", help="print the decision as JSON")
    parser.set_defaults(run=_route)


def _route(arguments: argparse.Namespace) -> int:
    config = load_config(_read(arguments.config), os.environ)
    if arguments.batch is not None:
        return route_batch(
            config, arguments.batch, model=arguments.model, tenant_id=arguments.tenant
        )
    prompt = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    lines, decision = preview(config, prompt, model=arguments.model, tenant_id=arguments.tenant)
    print(json.dumps(decision, indent=2) if arguments.json else "\n".join(lines), flush=True)
    return 0 if "route" in decision else 1


def _read(path: str | None) -> bytes:
    if path is None:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror}") from error
