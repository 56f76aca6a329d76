"""Back-tests: what is predicted from a log under one policy comes when another is live.

Ten pairs of policies, each recorded live under the first and run live under the second, in the
engines' own time: pipeline, strategies, pools and engines are real, and no machine is too slow.
"""

from gateway.backtest.fleets import Speeds, fleet_of_settings
from router.backtest.log_reader import read_records
from router.classify.task import GroupLimits, Tenant
from router.comparison.comparison import BacktestQuestion, BacktestReport, back_test
from router.comparison.redecide import Redecider
from router.comparison.statistics import Slo, TaskSummary, summarise
from router.comparison.table import logged_table
from router.policy.policy import Policy, parse_policy
from router.record.recording import DecisionRecord
from tests.sim.recorded import WIDE, asks, recorded

LIMIT_S = 1_800
NUM_TASKS = 300
PER_S = 3.0
SEED = 17
TIGHT = GroupLimits(requests_per_min=120, tokens_per_min=60_000, max_concurrent=8)
OUTAGE = ("gpu", 30_000_000, 50_000_000)
HALF = '[[rules]]\nname = "some"\npercent = 50\nwhen = { labels = ["deep"] }\nroute = "fast"'
JOINED = 'interactive = { route = "parallel" }\n[strategies]\nhedge_after_ms = 10'
# Of each pair: its name, the first policy, the second, and the tenant's limits.
PAIRS = (
    ("band", "", "[band]\nlow = 0.5\nhigh = 0.98", WIDE),
    ("all deep", "", 'interactive = { route = "deep" }\nuncertain = { route = "deep" }', WIDE),
    ("tight pool", "", 'deep = { route = "fast", fallback = ["deep"] }', TIGHT),
    ("waiting", "", "[wait_ms]\nfast = 5000\ndeep = 10000", TIGHT),
    ("canary", HALF, "", WIDE),
    ("hedge", "", JOINED, WIDE),
    ("verify", "", 'uncertain = { route = "parallel", strategy = "verify" }', WIDE),
    ("breadth", "", 'deep = { route = "parallel", strategy = "breadth" }', WIDE),
    ("delegate", 'deep = { route = "parallel", strategy = "delegate" }', "", WIDE),
    ("outage", "", 'interactive = { route = "deep" }', WIDE),
)


def main() -> bool:
    """Checks all pairs; each figure stands beside what came."""
    given = [
        ask._replace(fields={"max_output_tokens": 600}) for ask in asks(SEED, NUM_TASKS, PER_S)
    ]
    num_held = num_within = num_figures = 0
    for name, first, second, limits in PAIRS:
        tenants = [Tenant(id="studio", tier="standard", limits={"fast": limits, "deep": limits})]
        before, after = _policy("before", first), _policy("after", second)
        outage = OUTAGE if name == "outage" else None
        log = recorded(given, before, tenants, outage=outage)
        live = _truth(recorded(given, after, tenants, outage=outage))
        report = _report(log, before, after)
        print(f"\n{name}: {report.first_line}")
        tested = report.policies[0]
        rows = _compared(tested.summary, live)
        for figure, predicted, came, held in rows:
            low, high = tested.intervals.get(figure, (predicted, predicted))
            num_figures += 1
            is_within = low * 0.999 <= came <= high * 1.001
            num_within += is_within
            told = "held" if held else "MISSED"
            told += "" if is_within else f", outside {low:,.3f} to {high:,.3f}"
            print(f"  {figure:18} {predicted:12,.3f}, came {came:12,.3f}: {told}")
        num_held += all(held for *_, held in rows)
    share = num_within / num_figures
    print(
        f"\n{num_held} of {len(PAIRS)} pairs held; 90 % intervals held {share:.0%} of all figures"
    )
    return num_held == len(PAIRS)


def _policy(name: str, text: str) -> Policy:
    return parse_policy(f'version = "{name}"\n{text}'.encode())


def _truth(log: list[DecisionRecord]) -> TaskSummary:
    return summarise(logged_table(read_records(log)), Slo())


def _report(log: list[DecisionRecord], before: Policy, after: Policy) -> BacktestReport:
    settings = next(record.engine_settings for record in log if record.engine_settings)
    fleet = fleet_of_settings(settings, Speeds())
    redecider = Redecider(before, {each.info.name: each.info for each in fleet.machines})
    asked = BacktestQuestion(
        logged=read_records(log, redecider.take),
        base=before,
        policies={"after": after},
        fleet=fleet,
        redecided=redecider.found,
    )
    return back_test(asked)


def _compared(predicted: TaskSummary, live: TaskSummary) -> list[tuple[str, float, float, bool]]:
    """Returns each figure as predicted and as it came, and whether it is as near as promised."""
    rows = []
    for figure, share, ms in (
        ("latency_ms_p50", 0.05, 3.0),  # the loop wakes up to 3 ms late
        ("latency_ms_p95", 0.05, 3.0),
        ("ttft_ms_p50", 0.1, 5.0),
        ("ttft_ms_p95", 0.1, 5.0),
        ("output_tokens", 0.03, 0.0),
    ):
        said, came = getattr(predicted, figure) or 0.0, getattr(live, figure) or 0.0
        rows.append((figure, said, came, abs(said - came) <= max(share * came, ms)))
    off = abs(predicted.refused - live.refused)
    rows.append(("refused", predicted.refused, live.refused, off <= 0.02))
    return rows
