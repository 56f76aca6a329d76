"""Reports a classifier's evaluation on labelled records as text.

Every figure is compared with chance and with the length of the text alone, and with published
routers that were measured on the same benchmark. docs/classifier.md has the traps.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import msgspec

from router.classify.classify import features, form_opinion
from router.classify.task import TaskClass
from router.decide.decision import Refusal
from router.learn.stability import PASTE_CHARS, TRIVIAL_PROMPTS, flips, pasted, sample
from router.record.batch import Desk, Lane, lone_task, wish
from router.record.evaluation import (
    auc,
    auc_within,
    calibration_error,
    curve,
    flags,
    rank_correlation,
    share,
)
from router.record.labelled import Record, is_deep, is_security, outcomes

MIN_CURVE_RECORDS = 100  # fewer outcomes make no curve worth reading
HAND_WRITTEN = "handwritten_policy"  # a source with lanes given by people, reported on its own

# Source: RouteLLM, arXiv 2406.18665v4, tables 1-3, read 2026-01 from a copy of the paper's text:
# source here -> (router, APGR, CPT50, CPT80) of its routers that were trained on data of the
# benchmark's kind; the shares of calls only where the paper's text gave them.
_UNSAID = float("nan")
PUBLISHED: dict[str, tuple[tuple[str, float, float, float], ...]] = {
    "routellm_mmlu": (
        ("RouteLLM BERT", 0.572, _UNSAID, _UNSAID),
        ("RouteLLM matrix factorization", 0.597, _UNSAID, _UNSAID),
        ("RouteLLM causal LLM", 0.600, _UNSAID, _UNSAID),
        ("RouteLLM weighted Elo", 0.603, 0.354, 0.716),
    ),
    "routellm_gsm8k": (
        ("RouteLLM BERT", 0.531, _UNSAID, _UNSAID),
        ("RouteLLM matrix factorization", 0.565, _UNSAID, _UNSAID),
        ("RouteLLM weighted Elo", 0.568, _UNSAID, _UNSAID),
        ("RouteLLM causal LLM", 0.622, 0.336, 0.633),
    ),
    "routellm_mt_bench": (
        ("RouteLLM causal LLM", 0.679, _UNSAID, _UNSAID),
        ("RouteLLM BERT", 0.751, _UNSAID, _UNSAID),
        ("RouteLLM weighted Elo", 0.759, _UNSAID, _UNSAID),
        ("RouteLLM matrix factorization", 0.802, 0.134, 0.313),
    ),
}


class Judged(msgspec.Struct, frozen=True):
    """Holds a record with the classifier's opinion."""

    record: Record
    said: TaskClass
    lane: Lane  # where the policy would send it
    is_seen: bool  # the model was trained on this source


Known = Sequence[tuple[Judged, bool]]  # with what the labels say: whether it is deep
Score = Callable[[Judged], float]


def judge(record: Record, desk: Desk) -> Judged:
    """Classifies a record's text and finds where it would go."""
    task = lone_task(record.text, desk)
    opinion = form_opinion(features(task), desk.own_policy.band, desk.model)
    wished = wish(task, opinion, desk)
    assert not isinstance(wished, Refusal), "engines that take everything refuse nobody"
    is_seen = record.source in desk.model.provenance.sources
    return Judged(record, opinion.task_class, wished.lane, is_seen)


def _with_lanes(judged: Sequence[Judged]) -> Known:
    """Pairs the records that have a lane with whether it is deep."""
    return [(j, deep) for j in judged if (deep := is_deep(j.record)) is not None]


def _p_deep(one: Judged) -> float:
    return one.said.p_deep


def _length(one: Judged) -> float:
    return float(len(one.record.text))


def _auc(known: Known, score: Score = _p_deep) -> float:
    return auc([deep for _, deep in known], [score(j) for j, _ in known])


def _auc_within(known: Known, score: Score) -> tuple[float, int]:
    groups, deep = [j.record.group for j, _ in known], [deep for _, deep in known]
    return auc_within(groups, deep, [score(j) for j, _ in known])


def report(judged: Sequence[Judged]) -> list[str]:
    """Returns the whole report as lines of text."""
    return [
        *_lane_lines(judged),
        *_security_lines(judged),
        *_curve_lines(judged),
        *_output_lines(judged),
        *_confusion_lines(judged),
    ]


def stability_report(records: Sequence[Record], desk: Desk) -> list[str]:
    """Reports how often changes that leave the work the same change the lane."""

    def lane(text: str) -> Lane:
        return judge(Record(text=text), desk).lane

    texts = sample([record.text for record in records if record.text])
    if not texts:
        return ["", "Stability: no record has a text."]
    lanes = Counter(map(lane, pasted(texts)))
    return [
        "",
        f"Stability: lanes that change, of {len(texts)} texts",
        *[
            f"  {change:<30}  {share(num_flipped, len(texts)):6.1%}"
            for change, num_flipped in flips(texts, lane).items()
        ],
        f"  {len(TRIVIAL_PROMPTS)} trivial asks before {PASTE_CHARS:,} characters of paste: "
        f"{lanes['interactive']} interactive, {lanes['parallel']} both, {lanes['deep']} deep",
    ]


def _lane_lines(judged: Sequence[Judged]) -> list[str]:
    known = _with_lanes(judged)
    if not known:
        return ["Lanes: no record has one."]
    went = Counter((j.lane, deep) for j, deep in known)
    num_parallel = went["parallel", True] + went["parallel", False]
    num_right = went["interactive", False] + went["deep", True]
    num_deep = sum(deep for _, deep in known)
    unseen = [(j, deep) for j, deep in known if not j.is_seen]
    hand_written = [(j, deep) for j, deep in known if j.record.source == HAND_WRITTEN]
    public = [(j, deep) for j, deep in known if j.record.source != HAND_WRITTEN]
    within, num_within = _auc_within(public, _p_deep)
    length_within, _ = _auc_within(public, _length)
    error = calibration_error([deep for _, deep in known], [_p_deep(j) for j, _ in known])
    return [
        f"Lanes, {len(known)} records with a lane",
        f"  accuracy of what was decided    {share(num_right, len(known) - num_parallel):6.3f}",
        f"  AUC pooled                      {_auc(known):6.3f}   "
        f"length {_auc(known, _length):.3f}, random 0.500",
        f"  AUC on sources never trained on {_number(_auc(unseen))}",
        *_if_any(
            num_within,
            f"  AUC within sources, mean of {num_within:<3} {within:6.3f}   "
            f"length {length_within:.3f}, random 0.500",
        ),
        f"  AUC on hand-written requests    {_number(_auc(hand_written))}",
        f"  calibration error               {error:6.3f}",
        f"  deep sent to interactive        {share(went['interactive', True], num_deep):6.1%}",
        f"  sent to both                    {share(num_parallel, len(known)):6.1%}",
        f"  interactive sent to deep        "
        f"{share(went['deep', False], len(known) - num_deep):6.1%}",
    ]


def _if_any(count: int, line: str) -> list[str]:
    """Leaves out a line about nothing."""
    return [line] if count else []


def _security_lines(judged: Sequence[Judged]) -> list[str]:
    known = [(j, so) for j in judged if (so := is_security(j.record)) is not None]
    sensitive = [j for j, so in known if so]
    if not sensitive:
        return ["", "Security: no record is about it."]
    found = flags([so for _, so in known], [j.said.security_sensitive for j, _ in known])
    decoys = [j.said.security_sensitive for j in judged if j.record.number("security_decoy")]
    num_interactive = sum(j.lane == "interactive" for j in sensitive)
    return [
        "",
        f"Security, {len(sensitive)} records about it",
        f"  recall                          {found.recall:6.3f}",
        f"  precision                       {found.precision:6.3f}",
        f"  false alarms                    {found.false_alarm_rate:6.1%}",
        *_if_any(
            len(decoys),
            f"  false alarms on decoys          {share(sum(decoys), len(decoys)):6.1%}   "
            f"of {len(decoys)}",
        ),
        f"  sent to interactive             {share(num_interactive, len(sensitive)):6.1%}",
    ]


def _curve_lines(judged: Sequence[Judged]) -> list[str]:
    """Reports our curve and that of length alone for each source with enough outcomes."""
    measured: dict[str, list[tuple[Judged, tuple[float, float]]]] = defaultdict(list)
    for one in judged:
        pair = outcomes(one.record)
        if pair is not None:
            measured[one.record.group].append((one, pair))
            measured["all"].append((one, pair))
    lines = [
        "",
        "Small against large model, measured outcomes (APGR; calls to large for 50 %, 80 % of gap)",
        f"  {'source':<28}{'n':>6}{'small':>7}{'large':>7}{'APGR':>7}{'CPT50':>7}{'CPT80':>7}"
        f"{'length':>8}{'random':>8}",
    ]
    shown = []
    for source, members in sorted(measured.items()):
        small, large = zip(*(pair for _, pair in members), strict=True)
        ours = curve(small, large, [j.said.p_gain for j, _ in members])
        length = curve(small, large, [_length(j) for j, _ in members])
        if ours is None or length is None or len(members) < MIN_CURVE_RECORDS:
            continue
        shown.append(source)
        lines.append(
            f"  {source:<28}{ours.num_records:>6}{ours.small_accuracy:>7.3f}"
            f"{ours.large_accuracy:>7.3f}{ours.apgr:>7.3f}{ours.cpt50:>7.1%}{ours.cpt80:>7.1%}"
            f"{length.apgr:>8.3f}{0.5:>8.3f}"
        )
        for router, apgr, cpt50, cpt80 in PUBLISHED.get(source, ()):
            shares = f"{cpt50:>7.1%}{cpt80:>7.1%}" if cpt50 == cpt50 else ""
            lines.append(f"    {router:<46}{apgr:>7.3f}{shares}")
    if not shown:
        return ["", "Small against large model: too few measured outcomes."]
    lines.append(f"  {'(random)':<48}{0.5:>7.3f}{0.5:>7.1%}{0.8:>7.1%}")
    if not PUBLISHED.keys().isdisjoint(shown):
        lines.append("  (RouteLLM's figures: arXiv 2406.18665v4, with other training records)")
    return lines


def _output_lines(judged: Sequence[Judged]) -> list[str]:
    lengths: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in judged:
        num_tokens = one.record.number("out_tokens")
        if num_tokens:
            pair = (float(one.said.expected_output_tokens), num_tokens)
            lengths[one.record.group].append(pair)
    lines = ["", "Length of the answer, rank correlation"] if lengths else []
    for source, pairs in sorted(lengths.items()):
        found = rank_correlation([a for a, _ in pairs], [b for _, b in pairs])
        lines.append(f"  {source:<28}{len(pairs):>6}{found:>7.2f}")
    return lines


def _confusion_lines(judged: Sequence[Judged]) -> list[str]:
    """Reports for each source where interactive and deep records went."""
    known: dict[str, list[tuple[Judged, bool]]] = defaultdict(list)
    for one, deep in _with_lanes(judged):
        known[one.record.group].append((one, deep))
    if not known:
        return []
    lines = ["", "Confusion per source (interactive, both, deep)"]
    lines.append(f"  {'source':<40}{'of interactive':>18}{'of deep':>18}{'AUC':>7}")
    for source, members in sorted(known.items()):
        name = source if members[0][0].is_seen else f"{source} (unseen)"
        went = Counter((j.lane, deep) for j, deep in members)
        cells = [
            ", ".join(str(went[lane, deep]) for lane in ("interactive", "parallel", "deep"))
            for deep in (False, True)
        ]
        lines.append(f"  {name:<40}{cells[0]:>18}{cells[1]:>18}{_number(_auc(members)):>7}")
    return lines


def _number(value: float) -> str:
    return f"{value:6.3f}" if value == value else "     -"
