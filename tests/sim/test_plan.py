"""Tests plans: the offered fleet meets its objectives live, and one server less does not."""

from backends.simulated.gpu import GpuOptions
from backends.simulated.gpu import cost_of as gpu_cost
from backends.simulated.wafer import WaferOptions
from backends.simulated.wafer import cost_of as wafer_cost
from router.backtest.fleet import EngineMachine
from router.backtest.log_reader import read_records
from router.classify.task import Tenant
from router.comparison.statistics import Slo, summarise
from router.comparison.table import logged_table
from router.planning.capacity import capacity_of
from router.planning.cells import run_cell
from router.planning.search import Searcher
from router.planning.terms import Material, PlanSlo, ServerKind
from router.policy.policy import DEFAULT_POLICY
from tests.sim.recorded import WIDE, asks, recorded

SEED = 3
NUM_TASKS = 200
PER_S = 60.0
MOST_TPOT_MS = 15.3
MOST_GPUS = 6


def test_a_plans_fleet_meets_its_objective_live_and_one_server_less_does_not() -> None:
    """The plan is made from another fleet's log, with more GPU servers than are needed."""
    tenant = Tenant(id="studio", tier="standard", limits={"fast": WIDE, "deep": WIDE})
    given = [
        ask._replace(fields={"max_output_tokens": 600}) for ask in asks(SEED, NUM_TASKS, PER_S)
    ]

    def live_tpot_ms(num_gpus: int) -> float:
        log = recorded(given, DEFAULT_POLICY, [tenant], num_gpus=num_gpus)
        found = summarise(logged_table(read_records(log)), Slo()).tpot_ms_p95
        assert found is not None
        return found

    log = recorded(given, DEFAULT_POLICY, [tenant], num_gpus=MOST_GPUS)
    arrivals = read_records(log).arrivals
    wafer, gpu = WaferOptions(), GpuOptions()
    machines = (
        EngineMachine(info=wafer.info("wafer", "fast"), cost=wafer_cost(wafer)),
        EngineMachine(info=gpu.info("gpu", "deep"), cost=gpu_cost(gpu)),
    )
    kinds = tuple(
        ServerKind(
            name=machine.info.name,
            machine=machine,
            per_hour=1.0,
            least=1,
            most=most,
            capacity=capacity_of(machine, arrivals),
        )
        for machine, most in zip(machines, (1, MOST_GPUS), strict=True)
    )
    terms = Material(
        arrivals=arrivals,
        kinds=kinds,
        policies={"default": DEFAULT_POLICY},
        slo=PlanSlo(tpot_p95_ms=MOST_TPOT_MS, spare_failures=0),
        tenant_tiers={"studio": "standard"},
    )
    plan = Searcher(terms, 1.0, lambda cells: [run_cell(terms, cell) for cell in cells]).plan()
    assert plan.cheapest is not None
    _, num_gpus = plan.cheapest.cell.counts
    assert 1 < num_gpus < MOST_GPUS
    assert live_tpot_ms(num_gpus) <= MOST_TPOT_MS < live_tpot_ms(num_gpus - 1)
