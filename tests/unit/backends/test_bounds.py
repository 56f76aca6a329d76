"""Tests what an engine may send and report: honest answers pass whole, others are cut."""

import random
import re
from collections.abc import Callable

import pytest

from backends import bounds
from backends.bounds import (
    MARKER_TOKENS,
    MAX_TOKEN_BYTES,
    SPARE_BYTES,
    SPARE_TOKENS,
    OutputMeter,
    bounded_usage,
)
from backends.contract import Usage
from backends.tokenizer import count, split

# Honest text, repeated: prose, code, tables, rulers, and scripts with and without spaces.
HONEST = {
    "English": "The quick brown fox jumps over the lazy dog, and nobody minds that it is Tuesday. ",
    "German": "Die Donaudampfschifffahrtsgesellschaft verabschiedet Rechtsschutzversicherungen. ",
    "Russian": "Шла Саша по шоссе и сосала сушку, а навстречу ей шёл переводчик с чемоданом. ",
    "Greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία με μεγάλη προσοχή και υπομονή. ",
    "Arabic": "صِف خَلقَ خَودِ كَمِثلِ الشَمسِ إِذ بَزَغَت يَحظى الضَجيعُ بِها نَجلاءَ مِعطارِ ",
    "Hindi": "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले विष्णुवतार भगवान श्रीराम। ",
    "Thai": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่ากว่าบรรดาฝูงสัตว์เดรัจฉาน",
    "Chinese": "我们的网关把快速模型和深度模型放在同一个连接上，按照任务的性质来选择。",
    "Japanese": "いろはにほへと ちりぬるを、わかよたれそ つねならむ。ゲートウェイは速い。",
    "Korean": "다람쥐 헌 쳇바퀴에 타고파. 키스의 고유조건은 입술끼리 만나야 하고. ",
    "emoji": "👩‍👩‍👧‍👦🎉🚀 ok 👍🏽 ",
    "Python": "def add(a: int, b: int) -> int:\n        if a:\n                return a + b\n\n",
    "deep white space": "<li>" + " " * 96 + "\n" + "\t" * 40 + "</li>\n",
    "a table": "| name | value |\n|------|-------|\n| a    | 1     |\n",
    "rulers": "=" * 64 + "\n" + "-" * 64 + "\n",
    "hex": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "JSON": '{"id":17,"tags":["a","b"],"name":"x","nested":{"ok":true,"n":null}}',
}
# The largest pieces of any vocabulary: a word with the space before it, 3 Chinese or Japanese
# characters, 16 of other scripts without spaces, a run of one character, lines of white space.
_GREEDY = re.compile(
    r"(.)\1{3,127}"
    r"|[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]{1,3}"
    r"|\s?[\u0e00-\u0e7f]{1,16}"
    r"|\s?[0-9a-f]{1,16}(?![g-z])"
    r"|\s?[^\s\u0e00-\u0e7f\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]{1,127}"
    r"|\s{1,128}",
    re.DOTALL,
)


def pieces(text: str, chance: random.Random) -> list[str]:
    """Cuts a text anywhere."""
    cut, at = [], 0
    while at < len(text):
        size = chance.choice((1, 2, 5, 40, 1_000))
        cut.append(text[at : at + size])
        at += size
    return cut


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("num_times", [1, 40])
def test_an_honest_answer_is_never_cut(name: str, num_times: int) -> None:
    text = HONEST[name] * num_times
    num_tokens = sum(1 for _ in _GREEDY.finditer(text))
    for seed in range(20):
        meter = OutputMeter(num_tokens)
        passed = "".join(map(meter.take, pieces(text, random.Random(seed))))
        assert not meter.is_over, f"{num_tokens} tokens, seed {seed}"
        assert passed == text


# What a server sends without end -> how it is measured, and at most how much of it passes at a
# limit of 16 and of 1,000 tokens.
ENDLESS: dict[str, tuple[str, Callable[[str], int], tuple[int, int]]] = {
    "words": ("word ", lambda text: len(text.split()), (22, 1_129)),
    "one word": ("a" * 50, len, (4_608, 36_096)),
    "Chinese": ("我们的网关", len, (120, 4_700)),
    "white space": (" \n", len, (4_608, 36_096)),
    "emoji": ("🎉", lambda text: len(text.encode()), (4_608, 36_096)),
}


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("place", [0, 1])
def test_what_never_ends_is_cut_soon_after_its_limit(name: str, place: int) -> None:
    piece, size, most = ENDLESS[name]
    limit = (16, 1_000)[place]
    for at_once in (1, 7, 100_000):
        meter = OutputMeter(limit)
        passed = ""
        while not meter.is_over:
            passed += meter.take(piece * at_once)
        assert limit <= size(passed) <= most[place], at_once
        assert len(passed.encode()) == meter.num_bytes <= SPARE_BYTES + MAX_TOKEN_BYTES * limit
        assert meter.take("more") == ""


@pytest.mark.parametrize("seed", range(40))
def test_what_is_free_by_our_own_count_passes_whole(seed: int) -> None:
    chance = random.Random(seed)
    alphabet = "ab1.,<\n\t \u00a0\u2003é𝔘我かя🎉" + chance.choice(("", "a" * 40, " " * 40))
    limit = chance.choice((5, 100, 2_000))
    meter, passed = OutputMeter(limit), 0
    while (free := min(meter.num_free_tokens(), limit - passed)) > 0:
        text = "".join(chance.choices(alphabet, k=chance.choice((1, 7, 300))))
        kept = "".join(split(text)[:free])
        passed += count(kept)
        assert meter.take(kept) == kept, seed
        assert not meter.is_over
    assert passed == limit


@pytest.mark.parametrize("seed", range(40))
def test_words_of_short_ascii_text_are_what_the_expression_finds(seed: int) -> None:
    chance = random.Random(seed)
    alphabet = "ab." + "".join(map(chr, range(33))) + chance.choice(("", "a" * 40, " " * 40))
    text = "".join(chance.choices(alphabet, k=chance.randrange(bounds.LONGEST_UNIT)))
    assert bounds._num_units(text, 1_000) == len(bounds._UNIT.findall(text)), seed


def test_an_answer_is_bounded_in_bytes() -> None:
    meter = OutputMeter(1_000_000, max_bytes=5_000)
    passed = meter.take("é" * 2_400) + meter.take("é" * 2_400)
    assert meter.is_over
    assert len(passed.encode()) == 5_000
    other = OutputMeter(10, max_bytes=4_200)
    assert other.take_bytes(4_000)
    assert not other.take_bytes(4_000)
    assert other.is_over


def test_a_limit_without_room_lets_a_few_words_pass() -> None:
    meter = OutputMeter(0)
    assert meter.take("one two three four five six") == "one two three four"
    assert SPARE_TOKENS == 4


# What is reported for 40 bytes of text, a limit of 100 and at most 50 input tokens -> charged.
FIGURES = {
    "honest": (Usage(50, 40, 30, 10), Usage(50, 40, 30, 10)),
    "hidden reasoning": (Usage(50, 0, 100, 90), Usage(50, 0, 100, 90)),
    "more than the limit": (Usage(50, 0, 10**15, 10**15), Usage(50, 0, 100, 100, bounded=True)),
    "more than was shown": (Usage(50, 0, 90, 0), Usage(50, 0, 40 + MARKER_TOKENS, bounded=True)),
    "more than was sent": (Usage(10**30, 0, 9), Usage(50, 0, 9, bounded=True)),
    "more cached than read": (Usage(20, 30, 9), Usage(20, 20, 9, bounded=True)),
    "more thought than said": (Usage(20, 0, 9, 12), Usage(20, 0, 9, 9, bounded=True)),
    "negative": (Usage(-3, -2, -1, -9), Usage(0, 0, 0, 0, bounded=True)),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_charged_within_its_bound(name: str) -> None:
    reported, charged = FIGURES[name]
    meter = OutputMeter(100)
    meter.take("x" * 40)
    assert bounded_usage(reported, meter, 50) == charged


def test_rejected_predictions_come_on_top_and_are_at_most_what_was_predicted() -> None:
    meter = OutputMeter(40)
    meter.take("x" * 40)
    honest = Usage(5, 0, 100, num_accepted_tokens=20, num_rejected_tokens=60)
    assert bounded_usage(honest, meter, 50, prediction="x" * 80) == honest
    short = bounded_usage(honest, meter, 50, prediction="x" * 10)
    bounded = Usage(5, 0, 50, bounded=True, num_accepted_tokens=10, num_rejected_tokens=10)
    assert short == bounded
    assert bounded_usage(honest, meter, 50) == Usage(5, 0, 40, bounded=True), "none was sent"


def test_a_server_may_leave_rejected_predictions_out_of_its_output() -> None:
    meter = OutputMeter(16)
    meter.take("x" * 60)
    odd = Usage(5, 0, 16, num_accepted_tokens=12, num_rejected_tokens=30)
    assert bounded_usage(odd, meter, 50, prediction="x" * 97) == Usage(
        5, 0, 46, num_accepted_tokens=12, num_rejected_tokens=30
    )
    huge = Usage(5, 0, 16, num_accepted_tokens=9, num_rejected_tokens=10**7)
    charged = bounded_usage(huge, meter, 50, prediction="x" * 97)
    assert charged.num_output_tokens - charged.num_rejected_tokens == 16, "what a client is told"
