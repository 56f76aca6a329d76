"""Lists the scenarios: what each does, for how long, and what it must keep.

One of ours is a function that is given a `Stage`. What tests and `make accept` ask already is
called from here: `tests` are pytest's, `accept` the scripts' names.
"""

from typing import NamedTuple

from tests.chaos import faults, loads, redis_faults
from tests.chaos.stage import Scene

INTEGRATION, E2E, UNIT = "tests/integration", "tests/e2e", "tests/unit"


class Scenario(NamedTuple):
    """Is one row: its name, what happens, and what holds if it passes."""

    name: str
    title: str
    passes_if: str
    seconds: float = 0.0  # of our own part, divided so that all end within 20 minutes
    full_s: float = 0.0  # as long as it should be
    scene: Scene | None = None
    tests: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    full_accept: tuple[str, ...] = ()  # besides, where there is time


SCENARIOS = (
    Scenario(
        "L1",
        "2,000 idle sockets",
        "RSS below 25 KiB a socket, none dropped, loop lag p99 below 50 ms",
        *(20, 600, loads.idle),
    ),
    Scenario(
        "L2",
        "200 sockets, 100 turns/s",
        "no error, overhead p50 below 3 ms and p99 below 15 ms",
        *(20, 300, loads.steady),
    ),
    Scenario(
        "L3",
        "soak: 50 sockets, 20 turns/s",
        "RSS grows below 1 MB in 10 min, descriptors flat, places taken as leases",
        *(90, 3_600, loads.soak),
    ),
    Scenario(
        "L4",
        "500 sockets cut at once",
        "all back within 30 s, with 0 to 10 s of jitter",
        *(20, 20, loads.reconnects),
    ),
    Scenario(
        "L5",
        "three times the capacity",
        "goodput 90 % of it, refusals within 50 ms with retry-after, recovery within 10 s",
        *(15, 180, loads.overload),
    ),
    Scenario(
        "L6",
        "a neighbour at ten times its quota",
        "a steady tenant's p95 rises below twice, and none of its turns is refused",
        *(30, 180, loads.noisy_neighbour),
    ),
    Scenario(
        "L7",
        "four gateways at five times a tenant's limits",
        "admitted at most burst and rate, places never exceeded",
        *(60, 60, redis_faults.exact_quotas),
        full_accept=("late_redis",),
    ),
    Scenario(
        "F1",
        "Redis frozen for 5 s during L2",
        "no wait for it above 100 ms, alone within 1 s, back within 2 s",
        *(16, 60, redis_faults.frozen),
    ),
    Scenario(
        "F2",
        "Redis killed, and empty when it returns",
        "leases adopted, nothing negative, no crash; a Cluster and Sentinels fail over",
        *(20, 60, redis_faults.killed_and_empty),
        tests=(
            f"{INTEGRATION}/test_redis_topologies.py::test_a_clusters_failover_ends_the_outage",
            f"{INTEGRATION}/test_redis_topologies.py::test_a_sentinels_failover_ends_the_outage",
        ),
    ),
    Scenario(
        "F3",
        "Redis late by 10, 30, 60 ms",
        "given up only where it misses its budget",
        tests=(f"{INTEGRATION}/test_redis_faults.py::test_a_slow_redis",),
    ),
    Scenario(
        "F4",
        "READONLY, LOADING, MOVED, NOSCRIPT, out of memory",
        "each is reacted to as it should be",
        tests=(
            f"{INTEGRATION}/test_redis_faults.py",
            f"{INTEGRATION}/test_redis_away.py::test_a_redis_that_takes_no_writes_is_away",
            f"{INTEGRATION}/test_redis_topologies.py::test_a_slot_that_moves",
        ),
    ),
    Scenario(
        "F5",
        "gateways killed, twenty times",
        "pools full again after a lease and a second",
        tests=(
            f"{INTEGRATION}/test_pools_processes.py"
            "::test_twenty_kills_leave_the_pools_full_within_a_lease_and_a_second",
            f"{E2E}/test_workers.py::test_a_killed_worker_takes_only_its_own_with_it",
        ),
    ),
    Scenario(
        "F6",
        "the server's clock a minute off",
        "nobody locked out, no burst above the cap",
        tests=(
            f"{INTEGRATION}/test_pools_lua.py"
            "::test_a_stepped_server_clock_neither_locks_out_nor_overfills",
            f"{INTEGRATION}/test_pools_lua.py"
            "::test_a_clock_that_steps_under_running_tasks_costs_them_nothing",
        ),
    ),
    Scenario(
        "F7",
        "two releases' leases side by side",
        "no lease is lost",
        tests=(f"{INTEGRATION}/test_pools_lua.py::test_two_releases_share_one_tenants_pools",),
    ),
    Scenario(
        "F8",
        "ten faults of an engine, fifty times each",
        "one terminal a turn, again only before the first token, all settled",
        *(0, 0, faults.engine_faults),
        tests=(f"{INTEGRATION}/test_link_faults.py", f"{INTEGRATION}/test_link_lies.py"),
    ),
    Scenario(
        "F9",
        "an engine up for a second and down for a second",
        "ejected, at most 20 % more requests than turns, slow start",
        *(30, 120, faults.flapping),
    ),
    Scenario(
        "F10",
        "clients that do not read, drip, vanish, send nonsense",
        "cut in time; nobody else notices",
        tests=(
            f"{E2E}/test_disconnect.py",
            f"{E2E}/test_stalled_readers.py",
            f"{E2E}/test_nonsense.py",
        ),
        full_accept=("hostile",),
    ),
    Scenario(
        "F11",
        "slow handshakes, and silence",
        "gone in time, and who means well is answered",
        accept=("silence",),
    ),
    Scenario(
        "F12",
        "drain and replacement of each of two gateways during L2",
        "no turn begun is lost, none that was completed is forgotten",
        *(24, 120, faults.drain),
    ),
    Scenario(
        "F13",
        "disk full, 256 descriptors, a log pipe that nobody reads",
        "no stall, a clear word, a clean stop",
        *(10, 60, faults.full_disk),
        tests=(f"{UNIT}/gateway/logs/test_writer.py", f"{UNIT}/gateway/store/test_decision_log.py"),
    ),
    Scenario(
        "F14",
        "mutated policies",
        "each refused or valid",
        tests=(
            f"{UNIT}/router/policy/test_policy.py::test_mutations_are_refused_or_a_policy",
            f"{E2E}/test_reload.py::test_a_wrong_file_changes_nothing",
        ),
    ),
    Scenario(
        "F15",
        "1,000 generated calls of the API, the admin API among them",
        "no 5xx",
        accept=("schema",),
    ),
    Scenario(
        "F16",
        "10,000 bad keys",
        "401 within 5 ms; a key nearly right takes as long as any other, to 5 us",
        *(30, 30, faults.bad_keys),
    ),
    Scenario(
        "F17",
        "canaries in prompts, keys, headers and paths",
        "none in a log or a metric, here and after each scenario with gateways",
        *(5, 30, faults.canaries),
    ),
    Scenario(
        "F18",
        "Autobahn's 247 cases on the socket's stack",
        "none failed but 7.1.5",
        accept=("autobahn",),
    ),
    Scenario(
        "F19",
        "1,000 swaps of responses between tenants",
        "each unknown to who did not make it",
        *(0, 0, faults.swaps),
        tests=(f"{E2E}/test_protocol_turns.py::test_another_tenant_never_finds_a_response",),
    ),
    Scenario(
        "F20",
        "a start while Redis is down",
        "the policy of its file, `on_blind` obeyed, back once Redis is",
        *(0, 0, redis_faults.not_there_yet),
        tests=(f"{INTEGRATION}/test_redis_away.py::test_a_gateway_without_any_redis_is_blind",),
    ),
)
