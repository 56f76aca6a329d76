"""`lanewise route`.

An edge: it uses the operating system.
"""

import argparse
import json
import os
import sys

from gateway.cli.eval import route_batch
from gateway.cli.parser import Commands, add_command
from gateway.cli.preview import preview
from gateway.config.config import load_config
from gateway.config.config_file import read_config


def add(commands: Commands) -> None:
    """Add `route`."""
    parser = add_command(
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
    config = load_config(read_config(arguments.config), os.environ)
    if arguments.batch is not None:
        return route_batch(
            config, arguments.batch, model=arguments.model, tenant_id=arguments.tenant
        )
    prompt = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    lines, decision = preview(config, prompt, model=arguments.model, tenant_id=arguments.tenant)
    print(json.dumps(decision, indent=2) if arguments.json else "\n".join(lines), flush=True)
    return 0 if "route" in decision else 1
