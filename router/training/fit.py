"""Fits a `LinearModel` to records: features, vocabulary, the four heads, their calibration.

These choices follow from the measurements in docs/classifier.md:

- A word counts with its stem: rare and unknown words are judged by their beginning.
- Terms in fewer than three records or in only one source are dropped: they identify the source.
- Each source has an intercept that is dropped after the fit, so that words learn what separates
  large from small work inside a source. It is penalised, since sources with one kind of work alone
  teach something, too.
- Commits of medium size have soft labels; large sources count less per record.
- Written asks on security count less for lanes: they go deep by their `p_security`, and are told in
  everyday words, which would count as deep elsewhere.
- Some short prompts are repeated as people hand them over, and some with a long paste, deep ones
  as often as interactive ones.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import msgspec
import numpy as np

from router.classify.linear_model import (
    DEEP,
    HEADS,
    REQUEST_SHARE,
    SECURITY,
    LinearModel,
    Provenance,
    Weights,
    term_share,
    window_share,
)
from router.classify.text_features import (
    DENSE_NAMES,
    STEM_BYTES,
    Term,
    dense,
    num_terms,
    read,
    terms,
)
from router.record.labelled import (
    Record,
    RecordError,
    deep_target,
    fingerprint,
    gain_target,
    is_deep,
    is_gain,
    is_security,
    output_target,
    security_target,
)
from router.training.prompts import (
    EVERYDAY_SOURCE,
    LANGUAGE_SOURCES,
    PASTE_SOURCE,
    SOURCE,
    asks_with_pastes,
    everyday_prompts,
    paste_asks,
    security_prompts,
    with_pastes,
    with_wrappings,
    written_prompts,
)
from router.training.solver import Floats, Rows, fit_linear, fit_logistic, fit_scale, total

MODEL_VERSION = "2026.1"
MIN_RECORDS, MIN_SOURCES = 3, 2  # that a term must be in

Target = Callable[[Record], tuple[float, float] | None]

SECURITY_SHARE = 0.4  # that written asks on security count for lanes

DEFAULT_SEED = 20_260_115


class HeadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Says how one head is fitted. Penalties are of the squared coefficients; see `solver`."""

    target: Target
    logistic: bool
    term_penalty: float
    dense_penalty: float = 1.0
    shown_again: bool = False  # also with wrappings and pastes
    own_intercept: tuple[str, ...] = ()  # prefixes of sources that have an intercept each
    intercept_penalty: float = 1.0
    source_power: float = 0.5  # a source of n records counts n ** (1 - source_power)
    # Added after the fit to the weight of the length of prose, per spread: a prior, since on word
    # problems (GSM8K, 1,307 outcomes) length alone has an APGR of 0.60.
    length_tilt: float = 0.0


def _lane_target(record: Record) -> tuple[float, float] | None:
    found = deep_target(record)
    if found is None or not (record.source.startswith(SOURCE) and is_security(record)):
        return found
    probability, weight = found
    return probability, weight * SECURITY_SHARE


OPTIONS: dict[str, HeadOptions] = {
    "deep": HeadOptions(
        target=_lane_target,
        logistic=True,
        term_penalty=0.2,
        shown_again=True,
        own_intercept=("",),
        intercept_penalty=5.0,
        source_power=0.3,
    ),
    "security": HeadOptions(
        target=security_target, logistic=True, term_penalty=0.11, shown_again=True
    ),
    "gain": HeadOptions(
        target=gain_target,
        logistic=False,
        term_penalty=10.0,
        dense_penalty=50.0,
        source_power=0.25,
        length_tilt=0.2,
    ),
    "output": HeadOptions(target=output_target, logistic=False, term_penalty=4.0),
}
MAX_PAIRS = 8_000  # kept after fitting: more cost lookups and change nothing measurable
_OF_LANGUAGES = LANGUAGE_SOURCES | {PASTE_SOURCE}  # whose terms others need not have
WRITTEN_WEIGHT = 3.0  # of the prompts written for training, which are realistic
BIAS_PENALTY = 1e-3
_REST = 1 - REQUEST_SHARE


class Example(msgspec.Struct, frozen=True):
    """Holds a record with its features."""

    record: Record
    windows: list[list[Term]]  # distinct terms of each
    shares: list[float]  # that each of a window's terms counts
    request: list[Term]  # of the request in a long text, if there is one
    request_share: float
    shape: list[float]  # as `LinearModel` mixes it


def _example(record: Record) -> Example:
    reading = read(record.text)
    windows = [terms(words) for words in reading.windows]
    part = window_share(len(windows)) * (1 if reading.request is None else _REST)
    shares = [part * term_share(num_terms(words)) for words in reading.windows]
    shape = dense(reading, reading.num_chars)
    if reading.request is None:
        return Example(record, windows, shares, [], 0.0, shape)
    request = reading.request
    own = dense(request, len(request.prompt))
    mixed = [_REST * x + REQUEST_SHARE * y for x, y in zip(shape, own, strict=True)]
    share = REQUEST_SHARE * term_share(num_terms(request.words))
    return Example(record, windows, shares, terms(request.words), share, mixed)


def fit(records: Sequence[Record], calibration: Sequence[Record], seed: int) -> LinearModel:
    """Fits a model and calibrates it on other records; the same arguments give the same bits.

    Raises `RecordError` if nothing is labelled for one of the heads.
    """
    written = (
        *written_prompts(seed),
        *security_prompts(seed),
        *everyday_prompts(seed),
        *paste_asks(seed),
    )
    plain = [*records, *written]
    for name in HEADS:
        if all(OPTIONS[name].target(record) is None for record in plain):
            raise RecordError(f"no record has the labels that the head {name!r} is fitted to")
    again = [
        *with_wrappings(plain, seed),
        *with_pastes(plain, seed),
        *asks_with_pastes(records, seed),
    ]
    examples = [_example(record) for record in (*plain, *again)]
    columns = _columns(examples[: len(plain)])
    shapes = np.array([example.shape for example in examples])
    means = shapes[: len(plain)].mean(0)
    spreads = np.sqrt(((shapes[: len(plain)] - means) ** 2).mean(0)) + 1e-3
    design = _design(examples, columns, (shapes - means) / spreads)
    shown = [example.record for example in examples]
    heads = [_fit_head(shown, design, len(columns), len(plain), OPTIONS[name]) for name in HEADS]
    provenance = Provenance(
        version=MODEL_VERSION,
        num_records=len(records),
        records_hash=fingerprint(records),
        calibration_hash=fingerprint(calibration),
        sources=tuple(sorted({record.source for record in records})),
        seed=seed,
    )
    unscaled = _assemble(heads, columns, means, spreads, _NO_SCALES, provenance)
    scales = _scales(unscaled, calibration)
    return _assemble(heads, columns, means, spreads, scales, provenance)


def _columns(examples: Sequence[Example]) -> dict[Term, int]:
    """Maps terms to columns; a stem is a pair of itself and an empty word."""
    num_records: Counter[Term] = Counter()
    sources: dict[Term, set[str]] = defaultdict(set)
    for example in examples:
        found: set[Term] = set(chain.from_iterable(example.windows))
        found |= {stem for term in found if (stem := _stem(term)) is not None}
        num_records.update(found)
        for term in found:
            if len(sources[term]) < MIN_SOURCES:
                sources[term].add(example.record.group)
    kept = [
        term
        for term, count in num_records.items()
        if count >= MIN_RECORDS
        and (len(sources[term]) >= MIN_SOURCES or not sources[term].isdisjoint(_OF_LANGUAGES))
        and not _is_number(term)
    ]
    kept.sort(key=lambda term: (isinstance(term, tuple), -num_records[term], term))
    return {term: column for column, term in enumerate(kept)}


def _stem(term: Term) -> Term | None:
    if isinstance(term, bytes) and len(term) > STEM_BYTES:
        return (term[:STEM_BYTES], b"")
    return None


def _is_number(term: Term) -> bool:
    return any(map(bytes.isdigit, term if isinstance(term, tuple) else (term,)))


def _design(examples: Sequence[Example], columns: dict[Term, int], scaled: Weights) -> Rows:
    """Makes a sparse matrix of terms, then dense features, then the bias."""
    row: list[int] = []
    column: list[int] = []
    value: list[float] = []
    num_terms, num_dense = len(columns), scaled.shape[1]
    for at, (example, shape) in enumerate(zip(examples, scaled.tolist(), strict=True)):
        known = [(columns[term], x) for term, x in _shares(example) if term in columns]
        row += [at] * (len(known) + num_dense + 1)
        column += [*(number for number, _ in known), *range(num_terms, num_terms + num_dense + 1)]
        value += [*(share for _, share in known), *shape, 1.0]
    return Rows(
        row=np.array(row, np.int64),
        column=np.array(column, np.int64),
        value=np.array(value),
        shape=(len(scaled), num_terms + num_dense + 1),
    )


def _shares(example: Example) -> Iterator[tuple[Term, float]]:
    """Yields each term's value as in `LinearModel`, but with stems as separate terms."""
    for window, share in zip(example.windows, example.shares, strict=True):
        yield from _with_stems(window, share)
    yield from _with_stems(example.request, example.request_share)


def _with_stems(found: Iterable[Term], share: float) -> Iterator[tuple[Term, float]]:
    for term in found:
        yield term, share
        if (stem := _stem(term)) is not None:
            yield stem, share


def _fit_head(
    records: Sequence[Record], design: Rows, num_terms: int, num_plain: int, options: HeadOptions
) -> Floats:
    """Returns the coefficients of terms, dense features and bias."""
    shown = records if options.shown_again else records[:num_plain]
    goals = {at: goal for at, r in enumerate(shown) if (goal := options.target(r)) is not None}
    groups = [records[at].group for at in goals]
    sizes = Counter(groups)
    parts = [
        part
        * sizes[of] ** -options.source_power
        * (WRITTEN_WEIGHT if of in (SOURCE, EVERYDAY_SOURCE) else 1)
        for (_, part), of in zip(goals.values(), groups, strict=True)
    ]
    weight = np.array(parts)
    weight = weight * (len(goals) / total(weight))
    own = [of for of in sorted(sizes) if of.startswith(options.own_intercept)]
    rows = _with_intercepts(_take(design, list(goals)), groups, own)
    penalty = np.full(rows.shape[1], options.intercept_penalty)
    num_kept = design.shape[1]
    penalty[:num_terms] = options.term_penalty
    penalty[num_terms : num_kept - 1] = options.dense_penalty
    penalty[num_kept - 1] = BIAS_PENALTY
    target = np.array([value for value, _ in goals.values()])
    fitted = (fit_logistic if options.logistic else fit_linear)(rows, target, weight, penalty)
    if options.length_tilt:
        fitted[num_terms + DENSE_NAMES.index("length of prose")] += options.length_tilt
    return fitted[:num_kept]


def _take(rows: Rows, chosen: list[int]) -> Rows:
    """Selects rows and renumbers them."""
    number = np.full(rows.shape[0], -1, np.int64)
    number[chosen] = np.arange(len(chosen))
    kept = number[rows.row] >= 0
    return Rows(
        row=number[rows.row[kept]],
        column=rows.column[kept],
        value=rows.value[kept],
        shape=(len(chosen), rows.shape[1]),
    )


def _with_intercepts(rows: Rows, groups: list[str], own: list[str]) -> Rows:
    """Adds a column of ones for each of the `own` groups."""
    first = rows.shape[1]
    column_of = {group: first + n for n, group in enumerate(own)}
    pairs = [(at, column_of[of]) for at, of in enumerate(groups) if of in column_of]
    row, column = np.array(pairs, np.int64).reshape(-1, 2).T
    return Rows(
        row=np.concatenate([rows.row, row]),
        column=np.concatenate([rows.column, column]),
        value=np.concatenate([rows.value, np.ones(len(pairs))]),
        shape=(rows.shape[0], first + len(own)),
    )


def _assemble(
    heads: list[Floats],
    columns: dict[Term, int],
    means: Weights,
    spreads: Weights,
    scales: Weights,
    provenance: Provenance,
) -> LinearModel:
    """Adds each stem's weights to its words, and divides the dense weights by the spreads."""
    fitted = np.stack(heads, axis=1)
    num_terms = len(columns)
    pairs = [term for term in columns if isinstance(term, tuple) and term[1]]
    words = [term for term in columns if isinstance(term, bytes)]
    stems = [term[0] for term in columns if isinstance(term, tuple) and not term[1]]
    vocabulary = [*words, *_weighty(pairs, columns, fitted)]
    table = fitted[[columns[term] for term in [*vocabulary, *((stem, b"") for stem in stems)]]]
    for row, word in enumerate(words):
        if (stem := _stem(word)) in columns:
            table[row] += fitted[columns[stem]]
    table = table.astype(np.float16).astype(np.float64)  # as it will be packed
    dense_weights = fitted[num_terms : num_terms + len(DENSE_NAMES)] / spreads[:, None]
    return LinearModel(
        vocabulary, stems, table, means, dense_weights, fitted[-1], scales, provenance
    )


def _weighty(pairs: Sequence[Term], columns: dict[Term, int], fitted: Floats) -> list[Term]:
    """Selects the `MAX_PAIRS` pairs with the largest weights for lanes and security."""
    sizes = np.abs(fitted[[columns[pair] for pair in pairs]][:, [DEEP, SECURITY]])
    sizes = sizes / (sizes.mean(0) + 1e-12)
    kept = np.sort(np.argsort(-(sizes[:, 0] + sizes[:, 1]), kind="stable")[:MAX_PAIRS])
    return [pairs[at] for at in kept.tolist()]


_NO_SCALES: Weights = np.tile([1.0, 0.0], (len(HEADS), 1))
_EVENTS = (is_deep, is_security, is_gain)  # of the first heads' probabilities


def _scales(model: LinearModel, calibration: Sequence[Record]) -> Weights:
    """Fits Platt scaling for the heads that are probabilities."""
    said = [model.score(read(record.text)) for record in calibration]
    scores = np.array([(s.deep_log_odds, s.security_log_odds, s.gain_log_odds) for s in said])
    scales = np.array(_NO_SCALES)
    for head, event in enumerate(_EVENTS):
        known = {at: so for at, r in enumerate(calibration) if (so := event(r)) is not None}
        if known:
            happened = np.array([*known.values()], float)
            scales[head] = fit_scale(scores[[*known], head], happened, np.ones(len(known)))
    return scales
