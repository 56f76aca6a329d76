"""Shows the picture on a terminal, anew with each event. This is an edge."""

from collections.abc import Iterable

from rich.console import Console
from rich.live import Live

from gateway.top.picture import Picture
from gateway.top.screen import drawn

PIPE_WIDTH = 120


def shown(picture: Picture, events: Iterable[str]) -> None:
    """Draws the picture after each event, which says why nothing comes, until they end."""
    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for lost in events:
            live.update(drawn(picture, console.width, console.height, lost), refresh=True)


def print_once(picture: Picture) -> None:
    """Prints the picture."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    console.print(drawn(picture, console.width, console.height))
