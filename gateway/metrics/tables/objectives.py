"""Shows whether the gateway keeps what it promises: the dashboard that a page leads to.

The objectives themselves are rules: dashboards/alerts/objectives.py records the ratios that the
panels draw.
"""

from gateway.metrics import labels as by
from gateway.metrics.buckets import DURATION_S, QUEUE_S, TPOT_S, TTFT_S
from gateway.metrics.record import Dashboard, Line, Metric, Panel, Row, line, over, quantiles, rate
from gateway.metrics.reports import per_label, routed_models

WINDOWS = ("5m", "1h", "6h", "3d")
BURN_STEPS = ((1.0, "yellow"), (6.0, "orange"), (14.4, "red"))  # Google's SRE Workbook, chapter 5


def _burns(ratio: str, budget: str) -> tuple[Line, ...]:
    return tuple(Line(f"lanewise:{ratio}:rate{each} / {budget}", each) for each in WINDOWS)


# fmt: off
BUDGET = Row("Budget",
    Panel("Error budget left", "percentunit",
        "Of the tasks of 30 days that may fail, one in a thousand, those that have not yet.",
        lines=line("1 - lanewise:error_ratio:rate30d / 0.001", "left"), is_stat=True,
        steps=((-1e9, "red"), (0.1, "orange"), (0.25, "green"))),
    Panel("Error budget's burn rate", "none",
        "1 spends the budget in just 30 days; 14.4 for an hour and 6 for six hours page.",
        lines=_burns("error_ratio", "0.001"), steps=BURN_STEPS),
    Panel("First tokens' burn rate", "none",
        "Of the budget of fast tasks whose first token may come after 250 ms: one in twenty.",
        lines=_burns("fast_ttft_miss_ratio", "0.05"), steps=BURN_STEPS),
    Panel("Failed tasks", "percentunit", "Of those that ended, refusals and cancellations aside.",
        lines=line("lanewise:error_ratio:rate1m", "1m") + line("lanewise:error_ratio:rate5m", "5m"),
        steps=((0.001, "yellow"), (0.05, "red"))),
    Panel("Late first tokens", "percentunit", "Of fast tasks: after more than 250 ms.",
        lines=line("lanewise:fast_ttft_miss_ratio:rate5m", "5m"),
        steps=((0.05, "yellow"), (0.3, "red"))),
)

TASKS = Row("Tasks",
    Panel("Tasks", "reqps", "Tasks that ended, by route and outcome.",
        Metric("lanewise_requests_total", "counter", "Tasks that ended, by outcome.",
            (by.ROUTE, by.OUTCOME), rate("route", "outcome"), starts_at_zero=True)),
    Panel("Tasks running", "short", "Between arrival and terminal event, over all processes.",
        Metric("lanewise_tasks_running", "gauge", "Tasks between arrival and terminal event.",
            (), over("sum", legend="running"))),
    Panel("Duration", "s", "From arrival to the terminal event.",
        Metric("lanewise_request_duration_seconds", "histogram",
            "From a task's arrival to its terminal event.",
            (by.ROUTE, by.OUTCOME), quantiles("route"), DURATION_S)),
    Panel("Tokens", "suffix: tokens/s",
        "Input includes cached ones, output includes reasoning.",
        Metric("lanewise_tokens_total", "counter",
            "Tokens used; input includes cached_input, output includes reasoning.",
            (by.ROUTE, by.MODEL, by.TOKEN_TYPE), rate("model", "type"),
            zeros=lambda reports: [(*each, kind) for each in routed_models(reports)
                                   for kind in by.TOKEN_TYPE.values])),
    Panel("Version", "short", "Processes by version.",
        Metric("lanewise_build_info", "gauge", "The gateway that answers.",
            (by.VERSION,), over("count", "version"),
            read=per_label(lambda reports: {reports.version: 1}), merge="max"),
        is_stat=True),
)

SPEED = Row("Speed",
    Panel("Time to first token", "s", "From arrival; of fast tasks 95 % are due in 250 ms.",
        Metric("lanewise_ttft_seconds", "histogram", "From a task's arrival to its first token.",
            (by.ROUTE, by.MODEL), quantiles("route"), TTFT_S, zeros=routed_models),
        steps=((0.25, "yellow"),)),
    Panel("Time per output token", "s", "Mean of a task, its first token excepted.",
        Metric("lanewise_time_per_output_token_seconds", "histogram",
            "Mean time between a task's output tokens, the first excepted.",
            (by.ROUTE, by.MODEL), quantiles("model"), TPOT_S)),
    Panel("Waiting for the stream's turn", "s", "From arrival until its stream let it start.",
        Metric("lanewise_queue_wait_seconds", "histogram",
            "From a task's arrival until its stream let it start.",
            (by.ROUTE,), quantiles("route"), QUEUE_S)),
)
# fmt: on

OBJECTIVES = Dashboard(
    "lanewise-objectives",
    "Lanewise: objectives",
    "Budgets left and how fast they burn, then tasks and their speed.",
    *(BUDGET, TASKS, SPEED),
    variables=("route", "model"),
)
