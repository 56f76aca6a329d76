"""Shows which rules decide, canaries against their control, both engines, and what is learned."""

from gateway.metrics import labels as by
from gateway.metrics.buckets import CONFIDENCE, CONTEXT_TOKENS, TTFT_S
from gateway.metrics.record import Dashboard, Label, Metric, Panel, Row, line, over, quantiles, rate
from gateway.metrics.reports import per_label, single

# fmt: off
DECISIONS = Row("Decisions",
    Panel("Decisions", "reqps", "Routes taken, by the rule that put them first.",
        Metric("lanewise_route_decisions_total", "counter",
            "Routes taken, by the rule that put them first.",
            (by.POLICY, by.RULE, by.ROUTE, by.MODE), rate("policy", "rule", "route", "mode",
                 legend="{{route}} for {{rule}} ({{policy}}, {{mode}})"), ends=True)),
    Panel("Escalations", "reqps", "Tasks that ran elsewhere than ranked first.",
        Metric("lanewise_escalations_total", "counter",
            "Tasks that ran on another route than the one ranked first.",
            (by.FROM, by.TO, by.ROUTE_REASON),
            rate("from", "to", legend="{{from}} to {{to}}"),
            zeros=lambda _: [(a, b, "fallback") for a in by.FROM.values for b in by.TO.values
                             if a != b])),
    Panel("Classifier's confidence", "percentunit", "Probability of the label it chose.",
        Metric("lanewise_classifier_confidence", "histogram",
            "Probability the classifier gave to the label it chose.",
            (by.TASK,), quantiles("task"), CONFIDENCE)),
    Panel("Policy in force", "short",
        "The stored version, in the first and the last process; they differ during a change only.",
        Metric("lanewise_policy_version", "gauge",
            "The stored version in force (live) and the one that shadows it; 0: none is.",
            (by.POLICY_MODE,), over("min", "mode", legend="{{mode}} min")
            + over("max", "mode", legend="{{mode}} max"),
            merge="max", starts_at_zero=True)),
    Panel("Policy changes", "ops", "Taken from the store, or why they could not be.",
        Metric("lanewise_policy_reload_total", "counter",
            "Times that this process took a policy from the store, or could not.",
            (by.POLICY_RESULT,), rate("result"), starts_at_zero=True, has_created=True)),
    Panel("Back-test's error", "percentunit",
        "What came of the policy in force over what its back-test said, less 1 (shares: the"
        " difference), and how far off its interval allows it to be.",
        Metric("lanewise_backtest_error_ratio", "gauge",
            "What came of the policy in force over what its back-test said, less 1; 0: no check.",
            (by.FIGURE,), line("METRIC", "{{figure}} of {{instance}}"),
            starts_at_zero=True),  # of workers the first alone says it
        Metric("lanewise_backtest_interval_ratio", "gauge",
            "How far from what its back-test said a figure may be, within the 90 % interval.",
            (by.FIGURE,), line("METRIC", "{{figure}} of {{instance}}, allowed"),
            starts_at_zero=True)),
    Panel("Decision log", "ops", "Lines written, and lines lost.",
        Metric("lanewise_decision_records_total", "counter",
            "Lines for the decision log; dropped: too slow a disk, failed: a full or missing one.",
            (by.RECORDED,), rate("result"), starts_at_zero=True, has_created=True)),
)

CANARY = Row("Canary and shadow against control",
    Panel("Failures of canary and control", "percentunit",
        "Of the tasks that ended well or failed. Control: tasks that a rule with `percent` would"
        " have taken, had their conversation been in its share.",
        Metric("lanewise_canary_tasks_total", "counter",
            "Tasks that a rule with `percent` took (canary) or left for its share (control).",
            (by.ARM, by.OUTCOME), line(
                'sum by (arm) (rate(METRIC{outcome=~"error|timeout|shed"}[$__rate_interval]))'
                ' / sum by (arm) (rate(METRIC{outcome=~"ok|error|timeout|shed"}'
                "[$__rate_interval]))", "{{arm}}"),
            starts_at_zero=True)),
    Panel("First tokens of canary and control", "s", "From arrival.",
        Metric("lanewise_canary_ttft_seconds", "histogram",
            "From arrival to first token, of canaries and their control.",
            (by.ARM,), quantiles("arm"), TTFT_S, starts_at_zero=True)),
    Panel("Tokens of canary and control", "suffix: tokens/task", "Per task that ended.",
        Metric("lanewise_canary_tokens_total", "counter",
            "Input and output tokens of canaries and their control.",
            (by.ARM, Label("type", ("input", "output"))), line(
                "sum by (arm, type) (rate(METRIC[$__rate_interval])) / on (arm) group_left ()"
                " sum by (arm) (rate(lanewise_canary_tasks_total[$__rate_interval]))",
                "{{arm}} {{type}}"),
            starts_at_zero=True)),
    Panel("Shadow and live", "percentunit", "Share of each route, as the policies would have it.",
        lines=line(
            'sum by (mode, route) (rate(lanewise_route_decisions_total{mode="shadow"}'
            '[$__rate_interval])) / on (mode) group_left () sum by (mode)'
            ' (rate(lanewise_route_decisions_total{mode="shadow"}[$__rate_interval]))',
            "shadow {{route}}")
        + line(
            'sum by (route) (rate(lanewise_route_decisions_total{mode!="shadow"}'
            '[$__rate_interval])) / ignoring (route) group_left ()'
            ' sum (rate(lanewise_route_decisions_total{mode!="shadow"}[$__rate_interval]))',
            "live {{route}}")),
)

STRATEGIES = Row("Both engines",
    Panel("Strategies", "reqps",
        "Tasks on both engines, by how they ended; degraded is an answer though a part failed.",
        Metric("lanewise_strategy_tasks_total", "counter",
            "Tasks that ran on both engines, by how they ended.",
            (by.STRATEGY, by.STRATEGY_OUTCOME), rate("strategy", "outcome"),
            starts_at_zero=True, has_created=True)),
    Panel("Hedges won", "reqps", "By the engine that gave the answer.",
        Metric("lanewise_strategy_wins_total", "counter",
            "Answers of strategies where one engine wins, by the engine that gave them.",
            (by.COMPETING, by.GROUP), rate("strategy", "group"),
            starts_at_zero=True, has_created=True)),
    Panel("Tokens of losers", "suffix: tokens/s", "Used by generations that gave way to others.",
        Metric("lanewise_strategy_wasted_tokens_total", "counter",
            "Input and output tokens of generations that a strategy began and then cancelled.",
            (by.STRATEGY, by.GROUP), rate("strategy", "group"),
            starts_at_zero=True, has_created=True)),
    Panel("Compactions", "reqps",
        "Contexts that were to be made shorter, by who asked and what came of it.",
        Metric("lanewise_compactions_total", "counter",
            "Contexts that were to be compacted, by who asked and what came of it.",
            (by.COMPACTION_KIND, by.COMPACTION_OUTCOME), rate("kind", "outcome"),
            starts_at_zero=True, has_created=True)),
    Panel("Context before and after", "suffix: tokens",
        "Prompt tokens of compactions that came off: median and the largest tenth.",
        Metric("lanewise_compaction_tokens", "histogram",
            "Prompt tokens before and after, of compactions that came off.",
            (by.COMPACTION_KIND, Label("moment", ("before", "after"))),
            quantiles("moment", upper=0.9), CONTEXT_TOKENS,
            starts_at_zero=True, has_created=True)),
)

LEARNING = Row("What is learned",
    Panel("Outcomes learned from", "reqps",
        "What clients said and showed of answers, by where it came from.",
        Metric("lanewise_learning_outcomes_total", "counter",
            "Outcomes learned from, by where they came from.",
            (by.OUTCOME_SOURCE,), rate("source"),
            read=per_label(lambda reports: reports.learning.num_outcomes))),
    Panel("Tenants whose outcomes count", "short", "In the process that knows most.",
        Metric("lanewise_learning_tenants", "gauge",
            "Tenants whose outcomes move their tasks' routes.",
            (), over("max", legend="tenants"),
            read=single(lambda reports: reports.learning.num_trusted), merge="max")),
    Panel("How far outcomes moved the gain", "none", "The largest root mean square of a tenant.",
        Metric("lanewise_learning_distance", "gauge",
            "The largest root mean square by which a tenant's outcomes moved the gain.",
            (), over("max", legend="distance"),
            read=single(lambda reports: reports.learning.largest_distance), merge="max")),
    Panel("Tenants whose traffic has moved", "short", "By sign.",
        Metric("lanewise_drift_alarms", "gauge", "Tenants whose traffic has moved, by sign.",
            (by.SIGN,), over("max", "sign"),
            read=per_label(lambda reports: reports.learning.num_alarms), merge="max"),
        steps=((1.0, "yellow"),)),
    Panel("Drift", "none", "The largest population stability index by signal.",
        Metric("lanewise_drift_psi", "gauge",
            "The largest population stability index of a tenant's asks, by signal.",
            (by.SIGNAL,), over("max", "signal", legend="PSI of {{signal}}"),
            read=per_label(lambda reports: reports.learning.largest_psi), merge="max")),
)
# fmt: on

ROUTING = Dashboard(
    "lanewise-routing",
    "Lanewise: routing",
    "Which rules decide, canaries and shadows against control, both engines, what is learned.",
    *(DECISIONS, CANARY, STRATEGIES, LEARNING),
    variables=("route",),
)
