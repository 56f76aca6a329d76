"""Tests where asks go that people send, by the lanes that a thoughtful person chose (`asks.toml`).

The shares are what was measured, less what a training anew may move. Half of the asks were looked
at while rules and training lines were written, the other half judges them.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.contract import ContextItem, Message, Role, TextPart
from router.agent_runs.run_state import NEW_RUN, read
from router.classify.classify import DEFAULT_BAND, classify, features, features_of_text
from router.classify.task import TaskClass
from router.decide.continuity import conversation_state
from router.decide.weighing import Facts, weigh
from router.policy.tradeoff import Tradeoff
from router.training import prompts
from router.training.fit import DEFAULT_SEED
from tests.unit.router.tasks import backend, task

ASKS = tomllib.loads(Path(__file__).with_name("asks.toml").read_text("utf-8"))
STATS = (backend("wafer", "fast"), backend("gpu", "deep"))
HOLDERS = {"fast": "wafer", "deep": "gpu"}
LOOKED_AT, JUDGING = 0, 1
CONTEXT_TOKENS = 2_000


def rows(name: str, half: int) -> Iterator[tuple[str, str, str]]:
    """Yields each text of a half of a slice, with its ask and its lane."""
    for line in ASKS["slices"][name].strip().splitlines()[half::2]:
        _, lane, paste, ask = (part.strip() for part in line.split(" | ", 3))
        text = ask.replace("\\n", "\n")
        if paste != "-":
            names = paste.removesuffix("^").split("+")
            pasted = "\n\n".join(ASKS["pastes"][each].strip() for each in names)
            text = f"{pasted}\n\n{text}" if paste.endswith("^") else f"{text}\n\n{pasted}"
        yield text, ask, lane


def lane_of(found: TaskClass) -> str:
    if found.security_sensitive:
        return "deep"
    return {"interactive": "fast", "deep": "deep", "uncertain": "both"}[found.label]


# Slice -> the least share that goes where it should, and the largest that goes to the other engine
# alone, of the half that was looked at and of the other.
SHARES: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "agents": ((0.85, 0.0), (0.6, 0.15)),
    "deep": ((0.85, 0.1), (0.75, 0.1)),
    "deep_about_paste": ((0.5, 0.1), (0.4, 0.15)),
    "quick": ((0.9, 0.05), (0.85, 0.05)),
    "quick_about_paste": ((0.8, 0.1), (0.8, 0.1)),
    "small_talk": ((0.9, 0.05), (0.8, 0.05)),
}
FOLLOW_UPS_WRONG = 2  # of all


@pytest.mark.parametrize("half", [LOOKED_AT, JUDGING])
@pytest.mark.parametrize("name", sorted(ASKS["slices"]))
def test_asks_go_where_they_should(name: str, half: int) -> None:
    found = [
        (lane_of(classify(features_of_text(text))), lane, ask)
        for text, ask, lane in rows(name, half)
    ]
    least_right, most_wrong = SHARES[name][half]
    missed = [row for row in found if row[0] != row[1]]
    assert len(found) - len(missed) >= least_right * len(found), missed
    wrong = [row for row in missed if row[0] != "both"]
    assert len(wrong) <= most_wrong * len(found), wrong


def test_no_training_has_seen_them() -> None:
    known = {
        record.text.casefold().rstrip(" .?!。？！")
        for made in (
            prompts.written_prompts,
            prompts.security_prompts,
            prompts.everyday_prompts,
            prompts.paste_asks,
        )
        for record in made(DEFAULT_SEED)
    }
    asks = [ask for name in ASKS["slices"] for half in (0, 1) for _, ask, _ in rows(name, half)]
    assert [ask for ask in asks if ask.casefold().rstrip(" .?!。？！") in known] == []


def said(role: Role, text: str, tokens: int) -> ContextItem:
    return ContextItem(Message(role, (TextPart(text),)), tokens, hash((role, text)))


def test_what_is_said_to_an_answer_goes_where_it_should() -> None:
    wrong = []
    lines = ASKS["follow_ups"]["lines"].strip().splitlines()
    for line in lines:
        holder, lane, texts = line.split(" | ")
        before, ask = texts.split(" ~ ")
        items = (
            said("user", before, 20),
            said("assistant", "It is as follows.", CONTEXT_TOKENS),
            said("user", ask, 10),
        )
        asked = task(
            ask,
            items=items,
            prompt_tokens=CONTEXT_TOKENS + 30,
            run=read(NEW_RUN, items),
            last_backend=HOLDERS[holder],
            held_tokens=CONTEXT_TOKENS + 20,
        )
        facts = Facts(conversation=conversation_state(asked, STATS))
        found = weigh(Tradeoff(), DEFAULT_BAND, asked, classify(features(asked)), STATS, facts)
        if lane_of(found) != lane:
            wrong.append((line, lane_of(found), found.because))
    assert len(wrong) <= FOLLOW_UPS_WRONG, wrong
