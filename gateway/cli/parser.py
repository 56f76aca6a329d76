"""The parser of one command: its help shows an example."""

import argparse
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_command(commands: Commands, name: str, text: str, example: str) -> argparse.ArgumentParser:
    """Add a command whose help is that text with that example."""
    return commands.add_parser(
        name,
        help=text,
        description=text,
        epilog=f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
