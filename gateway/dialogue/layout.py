"""Draws answers as lines of a terminal: Markdown, never broken inside a word that fits.

What can no longer change is drawn once, to be printed above; the rest is drawn anew each time.
"""

import io
import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import TypeAlias

import msgspec
from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.styled import Styled
from rich.text import Text

from gateway.dialogue.answer import AnswerView, Passage

WIDE_COLUMNS = 120  # from here on two texts stand beside each other
MAX_DRAWN_CHARS = 16_384  # of what is not finished: only its end is seen anyway
CODE_THEME = "ansi_dark"  # in the terminal's own colours

Lines: TypeAlias = list[list[Segment]]

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_DIM = Style(dim=True)
_GUTTER = Segment(" │ ", _DIM)


class Canvas:
    """Turns passages of answers into lines, and lines into what a terminal takes."""

    def __init__(self, *, colour: bool) -> None:
        self._colours = ColorSystem.STANDARD if colour else None
        self._console = Console(
            file=io.StringIO(), force_terminal=True, color_system="standard", _environ={}
        )

    def column(
        self, passages: Sequence[Passage], width: int, title: str = "", *, goes_on: bool = False
    ) -> Lines:
        """Draws passages below each other; `goes_on` if something stands above them already."""
        lines: Lines = [[Segment(title, Style(bold=True))]] if title else []
        options = self._console.options.update(width=width, height=None)
        for passage in passages:
            if lines or goes_on:
                lines.append([])
            lines += _trimmed(self._console.render_lines(_drawn(passage), options, pad=False))
        return lines

    def beside(self, left: Lines, right: Lines, width: int) -> Lines:
        """Puts two columns, each as wide as `half` says, beside each other."""
        return [
            [*Segment.adjust_line_length(one or [], half(width)), _GUTTER, *(other or [])]
            for one, other in zip_longest(left, right)
        ]

    def text(self, lines: Lines) -> str:
        """Returns the lines, each with its end, with escape sequences if there is to be colour."""
        return "".join(f"{''.join(map(self._styled, line))}\n" for line in lines)

    def dim(self, text: str) -> str:
        """Returns what stands beside the answers, drawn back."""
        return _DIM.render(text, color_system=self._colours)

    def _styled(self, segment: Segment) -> str:
        text, style = segment.text, segment.style
        return text if style is None else style.render(text, color_system=self._colours)


class _Scroll(msgspec.Struct):
    """Says how much of an answer is printed for good."""

    title: str
    answer: AnswerView
    num_passages: int = 0  # whole ones
    num_chars: int = 0  # of the next one
    begun: bool = False

    @property
    def rest(self) -> list[Passage]:
        """Returns the passages with words that are not printed yet."""
        return _with_words(self._rest)

    @property
    def _rest(self) -> list[Passage]:
        passages = self.answer.passages[self.num_passages :]
        if passages and self.num_chars:
            begun = msgspec.structs.replace(passages[0], text=passages[0].text[self.num_chars :])
            passages = [begun, *passages[1:]]
        return passages

    def take(self, *, whole: bool) -> list[Passage]:
        """Moves on to what can still change, or to the end, and returns what was passed."""
        rest = self._rest
        if whole or self.answer.over:
            self.num_passages, self.num_chars = len(self.answer.passages), 0
            return _with_words(rest)
        if not rest:
            return []
        *before, growing = rest
        num_settled = num_settled_chars(growing.text)
        self.num_passages = len(self.answer.passages) - 1
        self.num_chars = num_settled + (0 if before else self.num_chars)
        settled = msgspec.structs.replace(growing, text=growing.text[:num_settled])
        return _with_words([*before, settled])


class DialogueView:
    """Shows the answers of one ask: one, or one of each engine."""

    def __init__(self, canvas: Canvas, answers: Sequence[tuple[str, AnswerView]]) -> None:
        self._canvas = canvas
        self._scrolls = [_Scroll(title, answer) for title, answer in answers]

    def settled(self, width: int) -> Lines:
        """Returns what can be printed for good, and was not returned before."""
        if len(self._scrolls) > 1 and width >= WIDE_COLUMNS:
            whole = all(scroll.answer.over for scroll in self._scrolls)
            if not whole or not any(scroll.rest for scroll in self._scrolls):
                return []
            lines = self._halves(width)
            for scroll in self._scrolls:
                scroll.take(whole=True)
            return lines
        lines = []
        for scroll in self._scrolls:
            lines += self._settled_of(scroll, width)
            if not scroll.answer.over:
                break
        return lines

    def unsettled(self, width: int, rows: int) -> Lines:
        """Returns the last rows of what can still change."""
        if len(self._scrolls) > 1 and width >= WIDE_COLUMNS:
            return self._halves(width, rows) if any(one.rest for one in self._scrolls) else []
        lines: Lines = []
        for scroll in self._scrolls:
            if scroll.answer.over and not scroll.rest:
                continue
            lines += self._half_by_half(scroll, width, rows) or self._canvas.column(
                _ends(scroll.rest), width, self._title(scroll), goes_on=scroll.begun
            )
            break
        return lines[-rows:]

    def _settled_of(self, scroll: _Scroll, width: int) -> Lines:
        if width >= WIDE_COLUMNS and any(passage.kind == "aside" for passage in scroll.rest):
            if not scroll.answer.over:
                return []  # both columns still grow
            lines = self._half_by_half(scroll, width)
            scroll.take(whole=True)
        else:
            passages, title = scroll.take(whole=False), self._title(scroll)
            lines = self._canvas.column(
                passages, width, title if passages else "", goes_on=scroll.begun
            )
        scroll.begun = scroll.begun or bool(lines)
        return lines

    def _title(self, scroll: _Scroll) -> str:
        return "" if scroll.begun else scroll.title

    def _halves(self, width: int, rows: int | None = None) -> Lines:
        """Draws the answers of two engines beside each other."""
        left, right = (
            self._canvas.column(one.rest if rows is None else _ends(one.rest), half(width))
            for one in self._scrolls
        )
        return self._titled(left, right, tuple(one.title for one in self._scrolls), width, rows)

    def _half_by_half(self, scroll: _Scroll, width: int, rows: int | None = None) -> Lines:
        """Draws what is said beside an answer on the left of it; nothing if there is none."""
        rest = scroll.rest if rows is None else _ends(scroll.rest)
        asides = [passage for passage in rest if passage.kind == "aside"]
        if width < WIDE_COLUMNS or not asides:
            return []
        left = self._canvas.column(asides, half(width))
        right = self._canvas.column([p for p in rest if p.kind != "aside"], half(width))
        return self._titled(left, right, ("before the answer", "answer"), width, rows)

    def _titled(
        self, left: Lines, right: Lines, titles: Sequence[str], width: int, rows: int | None
    ) -> Lines:
        """Puts columns beside each other below their titles; each shows its own last rows."""
        if rows is not None:
            left, right = left[-max(1, rows - 1) :], right[-max(1, rows - 1) :]
        heads: list[Lines] = [[[Segment(title, Style(bold=True))]] for title in titles]
        return self._canvas.beside(heads[0] + left, heads[1] + right, width)


def half(width: int) -> int:
    """Returns the width of each of two columns."""
    return (width - _GUTTER.cell_length) // 2


def num_settled_chars(markdown: str) -> int:
    """Returns how much of a growing text is whole blocks, which draw the same whatever follows.

    A block ends where a blank line is followed by text at the margin, outside a code fence.
    """
    settled = position = 0
    fence, after_blank = "", False
    for line in markdown.splitlines(keepends=True):
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not line[found.end() :].strip():
                fence = ""
        else:
            if after_blank and not line[0].isspace():
                settled = position
            if found:
                fence = found[1]
        after_blank = not line.strip()
        position += len(line)
    return settled


def _ends(passages: list[Passage]) -> list[Passage]:
    """Cuts unfinished passages to what may be on the screen."""
    return [
        msgspec.structs.replace(passage, text=passage.text[-MAX_DRAWN_CHARS:])
        for passage in passages
    ]


def _with_words(passages: list[Passage]) -> list[Passage]:
    return [passage for passage in passages if passage.text.strip()]


def _trimmed(lines: Lines) -> Lines:
    """Cuts blank lines at both ends: some kinds of blocks bring them, and some do not."""
    filled = [row for row, line in enumerate(lines) if any(one.text.strip() for one in line)]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def _drawn(passage: Passage) -> RenderableType:
    markdown = Markdown(passage.text.strip("\n"), code_theme=CODE_THEME, hyperlinks=False)
    match passage.kind:
        case "answer":
            return markdown
        case "thinking" | "aside":
            return Padding(Styled(markdown, _DIM), (0, 0, 0, 2))
        case "call":
            return Text(f"calls {passage.text}", style=_DIM)
        case "note":
            return Text(f"({passage.text})", style=_DIM)
