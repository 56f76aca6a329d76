"""The evaluation of a classifier on labelled records, as numbers and as text to read.

Every figure stands beside what chance and the length of the text alone achieve, and beside
published routers where they were measured on the same benchmark. Traps are told in
docs/classifier.md.
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
    Curve,
    Flags,
    auc,
    auc_within,
    calibration_error,
    curve,
    flags,
    rank_correlation,
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
    """A record with what the classifier said of it."""

    record: Record
    said: TaskClass
    lane: Lane  # where the policy would send it
    is_seen: bool  # the model was trained on this source

    @property
    def num_chars(self) -> float:
        return float(len(self.record.text))


class LaneFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Interactive against deep."""

    num_records: int
    accuracy: float  # of those that were decided, so not sent to both
    auc: float
    auc_unseen: float  # NaN if every source was trained on
    auc_within: float  # without the hand-written requests
    num_within: int  # sources in that mean
    auc_hand_written: float
    length_auc: float
    length_auc_within: float
    calibration_error: float
    deep_missed: float  # share of deep that went interactive
    parallel: float  # share of all that went to both
    deep_wasted: float  # share of interactive that went deep


def judge(record: Record, desk: Desk) -> Judged:
    """What is said of a record's text, and where it would go."""
    task = lone_task(record.text, desk)
    opinion = form_opinion(features(task), desk.own_policy.band, desk.model)
    wished = wish(task, opinion, desk)
    assert not isinstance(wished, Refusal), "engines that take everything refuse nobody"
    return Judged(
        record, opinion.task_class, wished.lane, record.source in desk.model.provenance.sources
    )


def lane_figures(judged: Sequence[Judged]) -> LaneFigures | None:
    """How well lanes are told apart; None without lanes."""
    known = _with_lanes(judged)
    if not known:
        return None
    deep = [is_so for _, is_so in known]
    p_deep = [j.said.p_deep for j, _ in known]
    lengths = [j.num_chars for j, _ in known]
    groups = [j.record.group for j, _ in known]
    lanes = [j.lane for j, _ in known]
    decided = [
        (lane == "deep") == so for lane, so in zip(lanes, deep, strict=True) if lane != "parallel"
    ]
    public = [at for at, (j, _) in enumerate(known) if j.record.source != HAND_WRITTEN]
    of_public = [groups[at] for at in public], [deep[at] for at in public]
    within, num_within = auc_within(*of_public, [p_deep[at] for at in public])
    crossed: Counter[tuple[str, bool]] = Counter(zip(lanes, deep, strict=True))
    return LaneFigures(
        num_records=len(known),
        accuracy=_mean(decided),
        auc=auc(deep, p_deep),
        auc_unseen=_auc_of(known, lambda j: not j.is_seen),
        auc_within=within,
        num_within=num_within,
        auc_hand_written=_auc_of(known, lambda j: j.record.source == HAND_WRITTEN),
        length_auc=auc(deep, lengths),
        length_auc_within=auc_within(*of_public, [lengths[at] for at in public])[0],
        calibration_error=calibration_error(deep, p_deep),
        deep_missed=_part(crossed["interactive", True], sum(deep)),
        parallel=_part(lanes.count("parallel"), len(lanes)),
        deep_wasted=_part(crossed["deep", False], len(deep) - sum(deep)),
    )


def _with_lanes(judged: Sequence[Judged]) -> list[tuple[Judged, bool]]:
    """The records with a lane, and whether it is deep."""
    return [(j, deep) for j in judged if (deep := is_deep(j.record)) is not None]


def _auc_of(known: Sequence[tuple[Judged, bool]], which: Callable[[Judged], bool]) -> float:
    chosen = [(so, j.said.p_deep) for j, so in known if which(j)]
    return auc([so for so, _ in chosen], [p for _, p in chosen])


def security_flags(judged: Sequence[Judged]) -> Flags:
    """The security decision against the labels."""
    known = [
        (so, j.said.security_sensitive) for j in judged if (so := is_security(j.record)) is not None
    ]
    return flags([so for so, _ in known], [said for _, said in known])


def curves(judged: Sequence[Judged]) -> dict[str, tuple[Curve, Curve]]:
    """Source (and "all") -> our curve and that of length alone, where outcomes are many."""
    measured: dict[str, list[tuple[Judged, tuple[float, float]]]] = defaultdict(list)
    for one in judged:
        pair = outcomes(one.record)
        if pair is not None:
            measured[one.record.group].append((one, pair))
            measured["all"].append((one, pair))
    found = {}
    for source, members in sorted(measured.items()):
        small, large = [pair[0] for _, pair in members], [pair[1] for _, pair in members]
        ours = curve(small, large, [j.said.p_gain for j, _ in members])
        lengths = curve(small, large, [j.num_chars for j, _ in members])
        if ours is not None and lengths is not None and len(members) >= MIN_CURVE_RECORDS:
            found[source] = (ours, lengths)
    return found


def report(judged: Sequence[Judged]) -> list[str]:
    """All that is told by the records, as lines of text."""
    return [
        *_lane_lines(judged),
        *_security_lines(judged),
        *_curve_lines(judged),
        *_output_lines(judged),
        *_confusion_lines(judged),
    ]


def stability_report(records: Sequence[Record], desk: Desk) -> list[str]:
    """How often the lane changes with what does not change the ask, as lines of text."""

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
            f"  {one.change:<30}  {_part(one.num_flipped, one.num_texts):6.1%}"
            for one in flips(texts, lane)
        ],
        f"  {len(TRIVIAL_PROMPTS)} trivial asks before {PASTE_CHARS:,} characters of paste: "
        f"{lanes['interactive']} interactive, {lanes['parallel']} both, {lanes['deep']} deep",
    ]


def _lane_lines(judged: Sequence[Judged]) -> list[str]:
    found = lane_figures(judged)
    if found is None:
        return ["Lanes: no record has one."]
    return [
        f"Lanes, {found.num_records} records with a lane",
        f"  accuracy of what was decided    {found.accuracy:6.3f}",
        f"  AUC pooled                      {found.auc:6.3f}   length {found.length_auc:.3f}, "
        "random 0.500",
        f"  AUC on sources never trained on {_number(found.auc_unseen)}",
        f"  AUC within sources, mean of {found.num_within:<3} {found.auc_within:6.3f}   "
        f"length {found.length_auc_within:.3f}, random 0.500",
        f"  AUC on hand-written requests    {_number(found.auc_hand_written)}",
        f"  calibration error               {found.calibration_error:6.3f}",
        f"  deep sent to interactive        {found.deep_missed:6.1%}",
        f"  sent to both                    {found.parallel:6.1%}",
        f"  interactive sent to deep        {found.deep_wasted:6.1%}",
    ]


def _security_lines(judged: Sequence[Judged]) -> list[str]:
    found = security_flags(judged)
    sensitive = [j for j in judged if is_security(j.record)]
    if not sensitive:
        return ["", "Security: no record is about it."]
    decoys = [j.said.security_sensitive for j in judged if j.record.number("security_decoy")]
    lanes = Counter(j.lane for j in sensitive)
    return [
        "",
        f"Security, {len(sensitive)} records about it",
        f"  recall                          {found.recall:6.3f}",
        f"  precision                       {found.precision:6.3f}",
        f"  false alarms                    {found.false_alarm_rate:6.1%}",
        f"  false alarms on decoys          {_mean(decoys):6.1%}   of {len(decoys)}",
        f"  sent to interactive             {_part(lanes['interactive'], len(sensitive)):6.1%}",
    ]


def _curve_lines(judged: Sequence[Judged]) -> list[str]:
    found = curves(judged)
    if not found:
        return ["", "Small against large model: too few measured outcomes."]
    lines = [
        "",
        "Small against large model, measured outcomes (APGR; calls to large for 50 %, 80 % of gap)",
        f"  {'source':<28}{'n':>6}{'small':>7}{'large':>7}{'APGR':>7}{'CPT50':>7}{'CPT80':>7}"
        f"{'length':>8}{'random':>8}",
    ]
    for source, (ours, length) in found.items():
        lines.append(
            f"  {source:<28}{ours.num_records:>6}{ours.small_accuracy:>7.3f}"
            f"{ours.large_accuracy:>7.3f}{ours.apgr:>7.3f}{ours.cpt50:>7.1%}{ours.cpt80:>7.1%}"
            f"{length.apgr:>8.3f}{0.5:>8.3f}"
        )
        for router, apgr, cpt50, cpt80 in PUBLISHED.get(source, ()):
            shares = f"{cpt50:>7.1%}{cpt80:>7.1%}" if cpt50 == cpt50 else ""
            lines.append(f"    {router:<46}{apgr:>7.3f}{shares}")
    lines.append(f"  {'(random)':<48}{0.5:>7.3f}{0.5:>7.1%}{0.8:>7.1%}")
    if any(source in PUBLISHED for source in found):
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
    """Source by source, where interactive and deep records went."""
    known: dict[str, list[tuple[Judged, bool]]] = defaultdict(list)
    for one, deep in _with_lanes(judged):
        known[one.record.group].append((one, deep))
    if not known:
        return []
    head = "interactive, both, deep"
    lines = ["", f"Confusion per source ({head})"]
    lines.append(f"  {'source':<40}{'of interactive':>18}{'of deep':>18}{'AUC':>7}")
    for source, members in sorted(known.items()):
        name = source if members[0][0].is_seen else f"{source} (unseen)"
        score = auc([so for _, so in members], [j.said.p_deep for j, _ in members])
        went = Counter((j.lane, so) for j, so in members)
        cells = [
            ", ".join(str(went[lane, so]) for lane in ("interactive", "parallel", "deep"))
            for so in (False, True)
        ]
        lines.append(f"  {name:<40}{cells[0]:>18}{cells[1]:>18}{_number(score):>7}")
    return lines


def _number(value: float) -> str:
    return f"{value:6.3f}" if value == value else "     -"


def _mean(values: Sequence[bool]) -> float:
    return _part(sum(values), len(values))


def _part(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
