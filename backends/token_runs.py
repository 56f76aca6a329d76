"""Counts the tokens of a long text without making them: by runs of equal characters, with numpy.

The plain twin is `tokenizer.split`, one regular expression; counting by it makes a string of every
token, which was most of what a long prompt cost the gateway. Here characters become classes,
classes become runs, and the tokens of a run follow from its length and its neighbours alone. A test
compares the two on any text.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

_Codes = npt.NDArray[np.uint8]
_Lengths = npt.NDArray[np.int64]

# Classes of characters; a run of one of the first five is cut into tokens of `_SIZES`.
_OTHER, _LETTERS, _DIGITS, _MARKS, _UPPER, _BLANKS, _BREAKS = range(7)
_SIZES: Final = np.array([1, 8, 3, 4, 3, 16, 2], dtype=np.int64)
_TAKES_SPACE: Final = np.array([0, 1, 1, 1, 0, 0, 0], dtype=bool)  # the space before is part of it
_INDENT_CHARS: Final = 14  # blanks that belong to a line break's token
_UPPER_FIRST, _UPPER_LAST = 0x80, 0x2FFF


def _class_of(char: str) -> int:
    if char in " \t":
        return _BLANKS
    if char == "\n":
        return _BREAKS
    if char.isalpha():
        return _LETTERS
    if char.isdigit():
        return _DIGITS
    return _MARKS if "!" <= char <= "~" else _OTHER


_ASCII: Final = bytes(_class_of(chr(code)) if code < 0x80 else _OTHER for code in range(256))
_UP_TO: Final = np.array(  # all that differ, and one for the rest
    [*_ASCII[:_UPPER_FIRST], *[_UPPER] * (_UPPER_LAST + 1 - _UPPER_FIRST), _OTHER], dtype=np.uint8
)
_CHUNK_CHARS = 1 << 14  # arrays that stay in cache; a chunk with one run in it grows


def count_by_runs(text: str, max_tokens: int | None = None) -> int:
    """Counts as `tokenizer.split` does; with a maximum, it stops soon after passing that."""
    num_tokens = start = 0
    size = _CHUNK_CHARS
    while start < len(text) and (max_tokens is None or num_tokens <= max_tokens):
        piece = text[start : start + size]
        counted, taken = _count_piece(piece, is_last=start + size >= len(text))
        num_tokens += counted
        start += taken
        size = _CHUNK_CHARS if taken else 2 * size
    return num_tokens


def _count_piece(piece: str, *, is_last: bool) -> tuple[int, int]:
    """Returns the tokens up to the last run without space or break, and their characters."""
    classes = _classes(piece)
    starts = np.flatnonzero(classes[1:] != classes[:-1]) + 1
    starts = np.concatenate(([0], starts, [len(piece)]))
    of_run = classes.take(starts[:-1])
    lengths = np.diff(starts)
    if is_last:
        return _count_runs(piece, of_run, lengths, starts), len(piece)
    # What comes before the last run of this kind does not depend on what comes after its start.
    whole = np.flatnonzero(of_run < _BLANKS)
    cut = int(whole[-1]) if len(whole) else 0
    if cut == 0:
        return 0, 0
    return _count_runs(piece, of_run[: cut + 1], lengths[: cut + 1], starts, cut), int(starts[cut])


def _classes(piece: str) -> _Codes:
    if piece.isascii():
        return np.frombuffer(piece.encode().translate(_ASCII), dtype=np.uint8)
    codes = np.frombuffer(piece.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    return _UP_TO.take(np.minimum(codes, _UPPER_LAST + 1))


def _count_runs(
    piece: str, of_run: _Codes, lengths: _Lengths, starts: _Lengths, num: int | None = None
) -> int:
    """Counts the tokens of the first `num` runs; the run after them is looked at, too, if any."""
    num = len(of_run) if num is None else num
    kinds, lengths = of_run[:num], lengths[:num]
    blanks = np.flatnonzero(kinds == _BLANKS)
    # A run is a token, and one more for each full size by which it is longer. Few runs are.
    longer = np.flatnonzero((lengths > _SIZES.take(kinds)) & (kinds != _BLANKS))
    more = (lengths[longer] - 1) // _SIZES[kinds[longer]]
    total = num - len(blanks) + int(more.sum())
    next_of = np.minimum(blanks + 1, len(of_run) - 1)
    has_next = blanks + 1 < len(of_run)
    taken = _TAKES_SPACE.take(of_run.take(next_of)) & has_next
    is_space = _are_spaces(piece, starts.take(blanks + 1) - 1)
    # Nearly all are the single space before a word, which is in the word's token.
    others = np.flatnonzero(~(taken & is_space & (lengths.take(blanks) == 1)))
    if not len(others):
        return total
    left = lengths[blanks[others]]
    after_break = (blanks[others] > 0) & (of_run[blanks[others] - 1] == _BREAKS)
    left = np.where(after_break, np.maximum(left - _INDENT_CHARS, 0), left)
    return total + _count_blanks(left, (is_space & has_next)[others], taken[others])


def _are_spaces(piece: str, positions: _Lengths) -> npt.NDArray[np.bool_]:
    """Returns which of the blanks at these positions are spaces and not tabs."""
    if "\t" not in piece:
        return np.ones(len(positions), dtype=bool)
    return np.array([piece[position] == " " for position in positions.tolist()], dtype=bool)


def _count_blanks(
    left: _Lengths, before_text: npt.NDArray[np.bool_], taken: npt.NDArray[np.bool_]
) -> int:
    """Counts the tokens of runs of blanks, whose lengths lack those of a line break's token.

    `before_text`: the last blank is a space before something else; `taken`: that space belongs to
    the token after it.
    """
    whole, rest = np.divmod(np.maximum(left - 1, 0), 16)
    rest = np.where(left > 0, rest + 1, 0)  # 1 to 16
    without_last = (left > 0) * (whole + (rest > 1) + ~taken)
    return int(np.where(before_text, without_last, (left + 15) // 16).sum())
