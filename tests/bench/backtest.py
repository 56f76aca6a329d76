"""Measures a back-test in simulated tasks per CPU-second, with one wafer and three GPU servers.

    python -m tests.bench.backtest                     tasks per CPU-second
    python -m tests.bench.backtest --profile           and where the time goes
    python -m tests.bench.backtest --against /old/tree  the ratio to another tree, run by turns

The arrivals are those of chats in several turns with prefixes, at a load that the engines can bear.
"""

import argparse
import cProfile
import json
import os
import pstats
import random
import subprocess
import sys
import time
from statistics import median

from backends.simulated.gpu import GpuOptions
from backends.simulated.gpu import cost_of as gpu_cost
from backends.simulated.wafer import WaferOptions
from backends.simulated.wafer import cost_of as wafer_cost
from router.backtest.arrivals import AnswerLength, Arrival
from router.backtest.fleet import EngineFleet, EngineMachine
from router.backtest.results import TaskResult, Totals
from router.backtest.simulation import Scenario, simulate
from router.classify.task import GroupLimits, Tenant
from router.policy.policy import DEFAULT_POLICY

START_US = 1_750_000_000_000_000
NUM_TASKS = 20_000
PER_S = 8.0
NUM_GPUS = 3
MAX_TURNS = 6
WIDE = GroupLimits(requests_per_min=100_000, tokens_per_min=100_000_000, max_concurrent=10_000)


def chats(number: int, seed: int = 1, per_s: float = PER_S) -> list[Arrival]:
    """Returns so many tasks of chats, in order of time; half of the turns are followed by one."""
    chance = random.Random(seed)
    found: list[Arrival] = []
    open_chats: list[tuple[int, int, int]] = []  # index of the last turn, its number, its context
    at_us = START_US
    for index in range(number):
        at_us += round(chance.expovariate(per_s) * 1e6)
        follows, turn, context = -1, 1, 0
        if open_chats and chance.random() < 0.5:
            follows, turn, context = open_chats.pop(chance.randrange(len(open_chats)))
        ask, answer = chance.randint(10, 800), chance.randint(20, 400)
        prompt = context + ask
        prefix = found[follows].prefix if follows >= 0 else ((chance.getrandbits(60), ask),)
        if follows >= 0:
            ending = found[follows].end_prefix
            assert ending is not None
            prefix = (*prefix, ending, (chance.getrandbits(60), prompt))
        length = AnswerLength(answer)
        found.append(
            Arrival(
                id=f"resp_{index}",
                at_us=at_us,
                tenant="studio",
                prompt_tokens=prompt,
                max_output_tokens=4_096,
                ask_tokens=ask,
                turns=turn,
                num_items=2 * turn - 1,
                brought_tokens=ask,
                held_tokens=context,
                p_deep=chance.random(),
                expected_output_tokens=200,
                prefix=prefix,
                end_prefix=(chance.getrandbits(60), prompt + answer),
                follows=follows,
                think_us=chance.randint(1_000_000, 20_000_000) if follows >= 0 else 0,
                lengths=(("fast", length), ("deep", length)),
            )
        )
        if turn < MAX_TURNS:
            open_chats.append((index, turn + 1, prompt + answer))
            del open_chats[:-200]
    return found


def fleet() -> EngineFleet:
    """Returns one wafer and three GPU servers."""
    wafer, gpu = WaferOptions(), GpuOptions()
    machines = [EngineMachine(info=wafer.info("wafer", "fast"), cost=wafer_cost(wafer))]
    for number in range(NUM_GPUS):
        info = gpu.info(f"gpu-{number}", "deep")
        machines.append(EngineMachine(info=info, cost=gpu_cost(gpu)))
    return EngineFleet(tuple(machines))


def scenario() -> Scenario:
    """Returns the default policy over that fleet, with wide pools."""
    tenant = Tenant(id="studio", tier="standard", limits={"fast": WIDE, "deep": WIDE})
    return Scenario(policy=DEFAULT_POLICY, fleet=fleet(), tenants={"studio": tenant})


def played(arrivals: list[Arrival]) -> tuple[float, list[TaskResult], Totals]:
    """Simulates; returns the CPU-seconds, too."""
    results: list[TaskResult] = []
    began_s = time.process_time()
    totals = simulate(arrivals, scenario(), results.append)
    return time.process_time() - began_s, results, totals


def _told(number: int) -> dict[str, object]:
    arrivals = chats(number)
    spent_s, results, totals = played(arrivals)
    ways: dict[str, int] = {}
    for result in results:
        way = result.route or "refused"
        ways[way] = ways.get(way, 0) + 1
    return {
        "tasks_per_cpu_s": round(number / spent_s),
        "ways": ways,
        "latency_s": round(sum(each.duration_us for each in results) / number / 1e6, 6),
        "output_tokens": sum(engine.output_tokens for engine in totals.engines),
    }


def _other(tree: str, number: int) -> dict[str, object]:
    command = [sys.executable, __file__, "--json", "--tasks", str(number)]
    paths = os.pathsep.join([tree, os.path.join(tree, "sdk", "python")])
    ran = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": paths}, cwd=tree, check=True, capture_output=True
    )
    told: dict[str, object] = json.loads(ran.stdout)
    return told


def main() -> None:
    """Reads the command line and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=NUM_TASKS)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--against", metavar="TREE")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if asked.profile:
        arrivals = chats(asked.tasks)
        profile = cProfile.Profile()
        profile.runcall(played, arrivals)
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
    elif asked.json:
        print(json.dumps(_told(asked.tasks)))
    elif asked.against:
        trees = {"before": asked.against, "after": os.getcwd()}
        rates: dict[str, list[float]] = {name: [] for name in trees}
        for _ in range(asked.rounds):
            for name, tree in trees.items():
                told = _other(tree, asked.tasks)
                rates[name].append(float(str(told["tasks_per_cpu_s"])))
                print(f"{name:8}", json.dumps(told))
        ratio = median(a / b for a, b in zip(rates["after"], rates["before"], strict=True))
        print(f"{ratio:.2f} times as fast")
    else:
        print(json.dumps(_told(asked.tasks), indent=2))


if __name__ == "__main__":
    main()
