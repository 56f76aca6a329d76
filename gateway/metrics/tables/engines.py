"""Shows the engines side by side, simulated ones and upstreams.

Of engines that say how long a request took in each phase there are vLLM's own metrics, under vLLM's
names (its metrics design document, 2026), so that dashboards made for it work unchanged.
"""

from collections.abc import Iterable

from backends.contract import BackendStats
from gateway.metrics import labels as by
from gateway.metrics.buckets import VLLM_REQUEST_S, VLLM_TOKENS
from gateway.metrics.record import (
    Dashboard,
    Label,
    Line,
    Metric,
    Panel,
    Row,
    line,
    over,
    quantiles,
    rate,
)
from gateway.metrics.reports import (
    Reports,
    backend_errors,
    backend_pairs,
    per_backend,
    per_engine,
    per_group,
    per_model,
    simulated_models,
)

VLLM = (Label("model_name"), Label("engine"))  # as vLLM calls them


def _kv_usage(stats: BackendStats) -> float:
    return stats.kv_used_tokens / stats.kv_capacity_tokens if stats.kv_capacity_tokens else 0.0


def _finished(reports: Reports) -> Iterable[tuple[str, ...]]:
    models = simulated_models(reports)
    return ((*each, reason) for each in models for reason in by.FINISHED_REASON.values)


def _once(expr: str, by: str, legend: str) -> tuple[Line, ...]:
    """Draws a sum over gateways, in which an engine behind a link counts once.

    Each gateway repeats the figures of such an engine as it has them from there.
    """
    linked = "lanewise_backend_linked == 1"
    if by != "backend":
        linked = f'label_replace({linked}, "{by}", "$1", "backend", "(.*)")'
    shared = f"max by ({by}) ({expr} and on (instance, {by}) ({linked}))"
    return line(f"{shared} or sum by ({by}) ({expr})", legend)


RATE = "rate(METRIC[$__rate_interval])"


# fmt: off
ENGINES_NOW = Row("Now",
    Panel("Up", "short", "1 while healthy, in the worst process.",
        Metric("lanewise_backend_up", "gauge", "1 while the backend is healthy.",
            (by.BACKEND, by.GROUP), over("min", "backend"),
            read=per_engine(lambda stats: stats.healthy), merge="min"),  # down for one is down
        is_stat=True, steps=((-1.0, "red"), (1.0, "green"))),
    Panel("Engines that take tasks", "short", "Healthy, and neither ejected nor drained.",
        Metric("lanewise_group_backends_up", "gauge",
            "Backends of a group that are healthy, and neither ejected nor drained.",
            (by.GROUP,), over("min", "group"),
            read=per_group(lambda stats: stats.takes_tasks and not stats.ejected), merge="min"),
        is_stat=True, steps=((-1.0, "red"), (1.0, "green"))),
    Panel("Ejected", "short", "1 while left alone for failures in a row, in any process.",
        Metric("lanewise_backend_ejected", "gauge", "1 while left alone for its failures.",
            (by.BACKEND,), over("max", "backend"),
            read=per_backend(lambda stats: stats.ejected), merge="max"),
        is_stat=True, steps=((1.0, "red"),)),
    Panel("Drained", "short", "1 while an admin lets it have no new tasks.",
        Metric("lanewise_backend_drained", "gauge", "1 while an admin lets it have no new tasks.",
            (by.BACKEND,), over("max", "backend"),
            read=per_backend(lambda stats: stats.drained), merge="max"),
        is_stat=True, steps=((1.0, "yellow"),)),
    Panel("Sequences", "short", "Generating, waiting, and how many fit at once.",
        Metric("lanewise_backend_inflight", "gauge", "Sequences that generate.",
            (by.BACKEND,), _once("METRIC", "backend", "running {{backend}}"),
            read=per_backend(lambda stats: stats.num_running), merge="engine"),
        Metric("lanewise_backend_waiting", "gauge", "Sequences that wait for a place.",
            (by.BACKEND,), _once("METRIC", "backend", "waiting {{backend}}"),
            read=per_backend(lambda stats: stats.num_waiting), merge="engine"),
        Metric("lanewise_backend_max_seqs", "gauge", "Sequences that fit at once.",
            (by.BACKEND,), _once("METRIC", "backend", "fit {{backend}}"),
            read=per_backend(lambda stats: stats.max_num_seqs), merge="engine")),
    Metric("lanewise_backend_linked", "gauge",
        "1 for an engine behind a link: each gateway repeats its figures, so they do not add up.",
        (by.BACKEND,), read=lambda reports: {(name,): 1 for name in reports.links}, merge="max",
        owner="either"),
    Panel("KV cache", "percentunit", "Share held by live sequences.",
        Metric("lanewise_backend_kv_usage_ratio", "gauge",
            "Share of the KV cache held by sequences.",
            (by.BACKEND,), over("max", "backend"), read=per_backend(_kv_usage), merge="max"),
        steps=((0.9, "red"),)),
    Panel("Watts", "watt", "Of simulated engines: rated power while they compute.",
        Metric("lanewise_backend_joules_total", "counter",
            "Energy of a simulated engine's steps, at rated power.",
            (by.BACKEND,), _once(RATE, "backend", "{{backend}} draws"),
            read=per_backend(lambda stats: stats.power_w * stats.busy_us / 1e6), merge="engine"),
        Metric("lanewise_backend_rated_watts", "gauge",
            "Rated power of a simulated engine's machine; 0: unknown.",
            (by.BACKEND,), _once("METRIC", "backend", "{{backend}} is rated at"),
            read=per_backend(lambda stats: stats.power_w), merge="max")),
)

ENGINE_SPEED = Row("Speed",
    Panel("Tokens generated", "suffix: tokens/s", "By engine.",
        Metric("vllm:generation_tokens_total", "counter", "Tokens generated since start.",
            VLLM, _once(RATE, "engine", "{{engine}}"),
            read=per_model(lambda stats: stats.num_generated_tokens), merge="engine")),
    Panel("Prompt tokens", "suffix: tokens/s", "By engine, cached ones included.",
        Metric("vllm:prompt_tokens_total", "counter", "Prompt tokens since start.",
            VLLM, _once(RATE, "engine", "{{engine}}"),
            read=per_model(lambda stats: stats.num_prompt_tokens), merge="engine")),
    Panel("Prefix cache", "percentunit", "Share of prompt tokens that were found in the KV cache.",
        Metric("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in a prefix.",
            VLLM, line("sum by (engine) (rate(METRIC[$__rate_interval])) / sum by (engine)"
                 " (rate(vllm:prefix_cache_queries_total[$__rate_interval]))", "{{engine}}"),
            read=per_model(lambda stats: stats.num_cached_tokens), merge="engine")),
    Panel("Time to first token in the engine", "s", "From its arrival there.",
        Metric("vllm:time_to_first_token_seconds", "histogram", "Time to first token.",
            VLLM, quantiles("engine"), VLLM_REQUEST_S, zeros=simulated_models)),
    Panel("Time between tokens", "s", "A request's mean, once for each of its tokens.",
        Metric("vllm:inter_token_latency_seconds", "histogram", "Time between output tokens.",
            VLLM, quantiles("engine"), VLLM_REQUEST_S, zeros=simulated_models)),
    Panel("Phases of a request", "s", "Mean time in the queue, in prefill and in decoding.",
        *(Metric(f"vllm:request_{phase}_time_seconds", "histogram", text, VLLM,
            line("sum by (engine) (rate(METRIC_sum[$__rate_interval])) / sum by (engine)"
                 " (rate(METRIC_count[$__rate_interval]))", f"{phase} {{{{engine}}}}"),
            VLLM_REQUEST_S, zeros=simulated_models)
          for phase, text in (("queue", "Time in the engine's queue."),
                              ("prefill", "Time from the first step to the first token."),
                              ("decode", "Time from the first to the last token.")))),
    Panel("Requests", "reqps", "That an engine ended, by why; abort: cancelled.",
        Metric("vllm:request_success_total", "counter", "Requests that ended, by why.",
            (*VLLM, by.FINISHED_REASON), rate("engine", "finished_reason"), zeros=_finished)),
)

FAULTS = Row("Faults",
    Panel("Failed generations", "reqps", "By backend and reason.",
        Metric("lanewise_backend_errors_total", "counter", "Generations that a backend failed.",
            (by.BACKEND, by.ERROR_CODE), rate("backend", "reason"), zeros=backend_errors,
            has_created=True),
        steps=((0.1, "red"),)),
    Panel("Failovers", "reqps",
        "Generations begun again on another backend, before their first word.",
        Metric("lanewise_failovers_total", "counter",
            "Generations begun again on another backend, before their first word.",
            (by.FROM_BACKEND, by.TO_BACKEND, by.ERROR_CODE),
            rate("from", "to", "reason", legend="{{from}} to {{to}}: {{reason}}"),
            zeros=lambda reports: [(*pair, "server_error") for pair in backend_pairs(reports)],
            has_created=True)),
    Panel("Continued answers", "reqps",
        "Answers that broke off or stalled amid their words, and that another backend ended.",
        Metric("lanewise_continued_total", "counter",
            "Answers that broke off or stalled, and that another backend went on with.",
            (by.FROM_BACKEND, by.TO_BACKEND, by.CONTINUATION),
            rate("from", "to", "reason", legend="{{from}} to {{to}}: {{reason}}"),
            zeros=lambda reports: [(*pair, "broke") for pair in backend_pairs(reports)],
            has_created=True)),
    Panel("Continued upstream", "reqps",
        "Requests that brought an upstream new items alone, and those that it had forgotten.",
        Metric("lanewise_upstream_continued_total", "counter",
            "Requests that brought an upstream new items alone.",
            (by.BACKEND,), rate("backend"), read=per_backend(lambda stats: stats.num_continued)),
        Metric("lanewise_upstream_chains_lost_total", "counter",
            "Requests that an upstream could not continue, and that were sent whole.",
            (by.BACKEND,), rate("backend", legend="{{backend}}: forgotten"),
            read=per_backend(lambda stats: stats.num_chains_lost))),
    Panel("Upstreams that lie", "reqps",
        "Generations whose reported usage was beyond what it can be, and those stopped at their"
        " limit, which the engine ignored.",
        Metric("lanewise_usage_bounded_total", "counter",
            "Generations charged by a bound: the engine reported more than can be, or nonsense.",
            (by.BACKEND,), rate("backend", legend="{{backend}}: bounded"),
            read=per_backend(lambda stats: stats.num_bounded)),
        Metric("lanewise_upstream_overruns_total", "counter",
            "Generations stopped because the engine went on beyond the limit that it was sent.",
            (by.BACKEND,), rate("backend", legend="{{backend}}: stopped"),
            read=per_backend(lambda stats: stats.num_overruns))),
)

WARM_UPS = Row("Warm-ups",
    Panel("Warm-ups under way", "short", "By backend.",
        Metric("lanewise_backend_warming", "gauge", "Warm-ups under way.",
            (by.BACKEND,), over("sum", "backend"),
            read=per_backend(lambda stats: stats.num_warming))),
    Panel("Warm-ups", "reqps", "By how far the backend was ready when they ended.",
        Metric("lanewise_warm_ups_total", "counter",
            "Warm-ups that ended, by how far the backend was ready then.",
            (by.BACKEND, by.WARMTH), rate("backend", "state", legend="{{backend}}: {{state}}"),
            zeros=lambda reports: [(stats.info.name, state) for stats in reports.backends
                                   for state in by.WARMTH.values],
            has_created=True)),
    Panel("Tokens of warm-ups", "suffix: tokens/s", "Prompt tokens that were computed for them.",
        Metric("lanewise_warm_up_tokens_total", "counter",
            "Prompt tokens that were computed for warm-ups.",
            (by.BACKEND,), rate("backend"),
            zeros=lambda reports: [(stats.info.name,) for stats in reports.backends],
            has_created=True)),
    Metric("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up.",
        VLLM, read=per_model(lambda stats: stats.num_prompt_tokens), merge="engine"),
    Metric("vllm:num_requests_running", "gauge", "Sequences that generate.",
        VLLM, read=per_model(lambda stats: stats.num_running), merge="engine"),
    Metric("vllm:num_requests_waiting", "gauge", "Sequences that wait for a place.",
        VLLM, read=per_model(lambda stats: stats.num_waiting), merge="engine"),
    Metric("vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 0 to 1.",
        VLLM, read=per_model(_kv_usage), merge="max"),
    Metric("vllm:e2e_request_latency_seconds", "histogram", "Time from arrival to the last token.",
        VLLM, buckets=VLLM_REQUEST_S, zeros=simulated_models),
    Metric("vllm:request_prompt_tokens", "histogram", "Prompt tokens of a request.",
        VLLM, buckets=VLLM_TOKENS, zeros=simulated_models),
    Metric("vllm:request_generation_tokens", "histogram", "Tokens that a request generated.",
        VLLM, buckets=VLLM_TOKENS, zeros=simulated_models),
    Metric("vllm:request_max_num_generation_tokens", "histogram",
        "Tokens of a request's longest sequence; ours have one.",
        VLLM, buckets=VLLM_TOKENS, zeros=simulated_models),
)
# fmt: on

ENGINES = Dashboard(
    "lanewise-engines",
    "Lanewise: engines",
    "Engines side by side: whether they live, what they hold, their speed, their watts.",
    *(ENGINES_NOW, ENGINE_SPEED, FAULTS, WARM_UPS),
    variables=("model",),
)
