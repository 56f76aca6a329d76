"""Bounds what an engine may send, and report as used, for one request, whatever it claims.

How a server cuts text into tokens is its own affair, so a limit in tokens is held against the
fewest tokens that a text can be. In every published vocabulary a token ends at white space at the
latest (GPT-2's to o200k's, Llama's, Qwen's, DeepSeek's, Gemma's; read 2026-11), so words are the
measure. Where words are long or are not spaced, these count:

- 128 characters of one word, or of white space alone (o200k has runs of up to 128);
- 4 characters of Chinese or Japanese (natural text has fewer than 2 a token);
- `MAX_TOKEN_BYTES` bytes of anything, on average over an answer (natural text has 3 to 12).

An eighth and `SPARE_TOKENS` more may pass, so an honest server is never cut, and one that ignores
its limit is cut soon after it: English words are 1.3 tokens each.
"""

import re
from itertools import islice

import msgspec

from backends.contract import Usage

MAX_TOKEN_BYTES = 32
SPARE_TOKENS = 4
SPARE_BYTES = 4_096  # of an answer, as a few tokens may all be long ones

# Tokens around a text that are not text: its end, its role, the marks of a call (OpenAI's harmony
# has 7 of them, Qwen's calls 12).
MARKER_TOKENS = 16

_CJK = "\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
_UNIT = re.compile(rf"[{_CJK}]{{1,4}}|[^\s{_CJK}]{{1,128}}|\s{{128}}")


def max_answer_bytes(max_tokens: int, max_bytes: int | None = None) -> int:
    """Returns the most bytes of an answer of so many tokens."""
    of_tokens = SPARE_BYTES + MAX_TOKEN_BYTES * max_tokens
    return of_tokens if max_bytes is None else min(of_tokens, max_bytes)


class OutputMeter:
    """Measures one generation's output, and lets through what its limits allow."""

    __slots__ = (
        "_max_units",
        "_num_units",
        "_num_unmeasured",
        "_unmeasured",
        "_was_cut_in_word",
        "is_over",
        "max_bytes",
        "max_tokens",
        "num_bytes",
    )

    def __init__(self, max_tokens: int, max_bytes: int | None = None) -> None:
        """`max_bytes` bounds further what `max_tokens` allows."""
        self.max_tokens = max_tokens
        self._max_units = max_tokens + max_tokens // 8 + SPARE_TOKENS
        self.max_bytes = max_answer_bytes(max_tokens, max_bytes)
        self.num_bytes = 0  # let through
        self.is_over = False  # some was not let through; nothing is from then on
        self._num_units = 0
        self._unmeasured: list[str] = []  # text let through whose words are not counted yet
        self._num_unmeasured = 0  # its characters
        self._was_cut_in_word = False  # the text before it ended within a word

    def take(self, text: str) -> str:
        """Returns as much of a text as may pass; sets `is_over` if that is not all of it."""
        if self.is_over:
            return ""
        num_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if self.num_bytes + num_bytes > self.max_bytes:
            room = self.max_bytes - self.num_bytes
            text = text.encode("utf-8", "surrogatepass")[:room].decode("utf-8", "ignore")
            num_bytes, self.is_over = room, True
        self.num_bytes += num_bytes
        self._unmeasured.append(text)
        self._num_unmeasured += len(text)
        # No text has more words than characters, so most need not be measured.
        if self._num_units + self._num_unmeasured > self._max_units:
            return self._measured(text)
        return text

    def take_bytes(self, num_bytes: int) -> bool:
        """Returns whether so many bytes that are no text may pass; sets `is_over` if not."""
        if self.num_bytes + num_bytes > self.max_bytes:
            self.is_over = True
        if not self.is_over:
            self.num_bytes += num_bytes
        return not self.is_over

    def _measured(self, text: str) -> str:
        """Counts the words of what was let through; returns what of the latest text may pass."""
        whole = "".join(self._unmeasured)
        self._unmeasured.clear()
        self._num_unmeasured = 0
        if not whole:
            return text
        room = self._max_units - self._num_units
        if self._was_cut_in_word and not whole[0].isspace():
            room += 1  # its first word was counted before
        ends = [found.end() for found in islice(_UNIT.finditer(whole), room + 1)]
        self._num_units = self._max_units - room + len(ends)
        self._was_cut_in_word = not whole[-1].isspace()
        if len(ends) <= room:
            return text
        self.is_over = True
        allowed = ends[room - 1] if room else 0
        kept = text[: max(0, allowed - (len(whole) - len(text)))]
        self.num_bytes -= len(text[len(kept) :].encode("utf-8", "surrogatepass"))
        return kept


def bounded_usage(
    reported: Usage, meter: OutputMeter, max_input_tokens: int, num_hidden_tokens: int = 0
) -> Usage:
    """Returns what is charged of a reported usage, marked as `bounded` if that is less.

    Output is at most the limit; of that, what is shown is at most the bytes that came, and
    `num_hidden_tokens` (reasoning, rejected predictions) come on top.
    """
    hidden = max(num_hidden_tokens, reported.num_reasoning_tokens)
    shown = meter.num_bytes + MARKER_TOKENS
    num_input = _between(reported.num_input_tokens, max_input_tokens)
    num_output = _between(reported.num_output_tokens, min(hidden + shown, meter.max_tokens))
    charged = Usage(
        num_input_tokens=num_input,
        num_cached_tokens=_between(reported.num_cached_tokens, num_input),
        num_output_tokens=num_output,
        num_reasoning_tokens=_between(reported.num_reasoning_tokens, num_output),
        exact=reported.exact,
        bounded=reported.bounded,
    )
    return reported if charged == reported else msgspec.structs.replace(charged, bounded=True)


def _between(figure: int, most: int) -> int:
    return max(0, min(figure, most))
