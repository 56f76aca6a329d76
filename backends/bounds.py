"""Bounds what an engine may send, and report as used, for one request, whatever it claims.

How a server cuts text into tokens is its own affair, so a limit in tokens is held against the
fewest tokens that a text can be. In every published vocabulary a token ends at white space at the
latest (GPT-2's to o200k's, Llama's, Qwen's, DeepSeek's, Gemma's; read 2026-11), so words are the
measure. Where words are long or are not spaced, these count:

- 128 characters of one word, or of ASCII white space alone (o200k has runs of up to 128);
- 4 characters of Chinese or Japanese (natural text has fewer than 2 a token);
- `MAX_TOKEN_BYTES` bytes of anything, on average over an answer (natural text has 3 to 12).

An eighth and `SPARE_TOKENS` more may pass, so an honest server is never cut, and one that ignores
its limit is cut soon after it: English words are 1.3 tokens each.

Each of these has at least one token by `backends.tokenizer`'s rule, none of whose tokens has more
than 16 bytes. So a text that is below the limit by that rule, as most are, need not be measured.
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

OWN_TOKEN_BYTES = 16  # at most, of a token by `backends.tokenizer`'s rule
MAX_UNMEASURED_TOKENS = 4_096  # are measured within a millisecond

LONGEST_UNIT = 128  # characters

_CJK = "\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
_SPACE = r"\t-\r\x1c- "
_UNIT = re.compile(
    rf"[{_CJK}]{{1,4}}|[^{_SPACE}{_CJK}]{{1,{LONGEST_UNIT}}}|[{_SPACE}]{{{LONGEST_UNIT}}}"
)


def max_answer_bytes(max_tokens: int, max_bytes: int | None = None) -> int:
    """Returns the most bytes of an answer of so many tokens."""
    of_tokens = SPARE_BYTES + MAX_TOKEN_BYTES * max_tokens
    return of_tokens if max_bytes is None or of_tokens < max_bytes else max_bytes


class OutputMeter:
    """Measures one generation's output, and lets through what its limits allow."""

    __slots__ = (
        "_is_in_word",
        "_max_units",
        "_num_free_chars",
        "_num_measured_bytes",
        "_num_units",
        "_num_unmeasured_chars",
        "_unmeasured",
        "is_over",
        "max_bytes",
        "max_tokens",
    )

    def __init__(self, max_tokens: int, max_bytes: int | None = None) -> None:
        """`max_bytes` bounds further what `max_tokens` allows."""
        self.max_tokens = max_tokens
        self.max_bytes = max_bytes = max_answer_bytes(max_tokens, max_bytes)
        self.is_over = False  # some was not let through; nothing is from then on
        self._max_units = max_units = max_tokens + max_tokens // 8 + SPARE_TOKENS
        self._num_units = 0
        self._num_measured_bytes = 0
        self._is_in_word = False  # what was measured ends within a word
        self._unmeasured: list[str] = []  # let through, and not measured yet
        self._num_unmeasured_chars = 0
        # That may pass before they must be measured: `_set_free_chars` says why so many.
        self._num_free_chars = max_units if max_units < max_bytes // 4 else max_bytes // 4

    @property
    def num_bytes(self) -> int:
        """Returns how much was let through."""
        return self._num_measured_bytes + _num_bytes("".join(self._unmeasured))

    def num_free_tokens(self) -> int:
        """Returns how many tokens by our own rule may pass before `take` must see them."""
        if self.is_over:
            return 0
        if self._unmeasured:
            self._measured("")
        num_bytes_left = self.max_bytes - self._num_measured_bytes
        num_units_left = self._max_units - self._num_units
        return min(num_units_left, num_bytes_left // OWN_TOKEN_BYTES, MAX_UNMEASURED_TOKENS)

    def take(self, text: str) -> str:
        """Returns as much of a text as may pass; sets `is_over` if that is not all of it."""
        self._num_unmeasured_chars += len(text)
        if self._num_unmeasured_chars > self._num_free_chars:
            return "" if self.is_over else self._measured(text)
        self._unmeasured.append(text)
        return text

    def note(self, text: str) -> None:
        """Takes a text that has passed already, as `num_free_tokens` said that it may."""
        self._num_unmeasured_chars += len(text)
        self._unmeasured.append(text)

    def take_bytes(self, num_bytes: int) -> bool:
        """Returns whether so many bytes that are no text may pass; sets `is_over` if not."""
        if self.num_bytes + num_bytes > self.max_bytes:
            self.stop()
        if not self.is_over:
            self._num_measured_bytes += num_bytes
            self._set_free_chars()
        return not self.is_over

    def stop(self) -> None:
        """Lets nothing through from now on."""
        self.is_over = True
        self._num_free_chars = -1

    def _set_free_chars(self) -> None:
        """Sets how many characters may pass unmeasured: each has a word and four bytes at most."""
        num_units_left = self._max_units - self._num_units
        num_chars_left = (self.max_bytes - self._num_measured_bytes) // 4
        self._num_free_chars = num_units_left if num_units_left < num_chars_left else num_chars_left

    def _measured(self, text: str) -> str:
        """Counts what was let through, and returns what of the next text may pass."""
        before = "".join(self._unmeasured)
        self._unmeasured.clear()
        self._num_unmeasured_chars = 0
        whole = before + text
        if not whole:
            return text
        room = self._max_units - self._num_units
        if self._is_in_word and not whole[0].isspace():
            room += 1  # its first word was counted before
        num_units = _num_units(whole, room + 1)
        self._num_units = self._max_units - room + num_units
        self._is_in_word = not whole[-1].isspace()
        is_over = num_units > room
        kept = text
        if is_over:
            num_chars = _end_of_units(whole, room)
            kept = text[: max(0, num_chars - len(before))]
        num_bytes, num_bytes_left = _num_bytes(before), self.max_bytes - self._num_measured_bytes
        if num_bytes + _num_bytes(kept) > num_bytes_left:
            encoded = kept.encode("utf-8", "surrogatepass")
            kept = encoded[: num_bytes_left - num_bytes].decode("utf-8", "ignore")
            is_over = True
        self._num_measured_bytes += num_bytes + _num_bytes(kept)
        self._set_free_chars()
        if is_over:
            self.stop()
        return kept


def _num_units(text: str, most: int) -> int:
    """Counts units, `most` of them at most unless the text is short."""
    if len(text) < LONGEST_UNIT and text.isascii():
        return len(text.split())  # words, since none of these is cut
    return sum(1 for _ in islice(_UNIT.finditer(text), most))


def _end_of_units(text: str, num_units: int) -> int:
    """Returns where the last of a text's first units ends; the text has as many."""
    end = 0
    for unit in islice(_UNIT.finditer(text), num_units):
        end = unit.end()
    return end


def _num_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def bounded_usage(
    reported: Usage,
    meter: OutputMeter,
    max_input_tokens: int,
    num_hidden_tokens: int = 0,
    prediction: str | None = None,
    least_bytes: int | None = None,
) -> Usage:
    """Returns what is charged of a reported usage, marked as `bounded` if that is less.

    Output is at most the limit; of that, what is shown is at most the bytes that came, and
    `num_hidden_tokens` (reasoning, say) come on top. Tokens of the prediction that was sent, and
    was rejected, come on top of the limit; a server that leaves them out of its output is known by
    an output that cannot have them. `least_bytes`, where they suffice, stand for those that came.
    """
    most_predicted = _num_bytes(prediction) if prediction else 0
    num_rejected = reported.num_rejected_tokens
    if num_rejected:
        num_rejected = _between(num_rejected, most_predicted)
    if num_rejected and num_rejected + reported.num_reasoning_tokens > reported.num_output_tokens:
        num_output = reported.num_output_tokens + num_rejected
        reported = msgspec.structs.replace(reported, num_output_tokens=num_output)
    hidden = reported.num_reasoning_tokens
    if hidden < num_hidden_tokens:
        hidden = num_hidden_tokens
    num_bytes = meter.num_bytes if least_bytes is None else least_bytes
    most_output = hidden + num_rejected + num_bytes + MARKER_TOKENS
    if most_output > meter.max_tokens + num_rejected:
        most_output = meter.max_tokens + num_rejected
    num_accepted = reported.num_accepted_tokens
    if (
        0 <= reported.num_cached_tokens <= reported.num_input_tokens <= max_input_tokens
        and 0 <= reported.num_cache_write_tokens <= reported.num_input_tokens
        and 0 <= reported.num_reasoning_tokens <= reported.num_output_tokens <= most_output
        and reported.num_rejected_tokens == num_rejected
        and 0 <= num_accepted <= most_predicted
        and num_accepted <= reported.num_output_tokens
    ):
        return reported
    num_input = _between(reported.num_input_tokens, max_input_tokens)
    num_output = _between(reported.num_output_tokens, most_output)
    return Usage(
        num_input_tokens=num_input,
        num_cached_tokens=_between(reported.num_cached_tokens, num_input),
        num_output_tokens=num_output,
        num_reasoning_tokens=_between(reported.num_reasoning_tokens, num_output),
        exact=reported.exact,
        bounded=True,
        num_accepted_tokens=_between(reported.num_accepted_tokens, min(most_predicted, num_output)),
        num_rejected_tokens=num_rejected,
        energy_uj=reported.energy_uj,
        num_cache_write_tokens=_between(reported.num_cache_write_tokens, num_input),
        service_tier=reported.service_tier,
    )


def _between(figure: int, most: int) -> int:
    return max(0, min(figure, most))
