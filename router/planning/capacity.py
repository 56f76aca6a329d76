"""Estimates how many tokens a server makes at most, to rank fleets before they are simulated."""

from collections.abc import Sequence
from statistics import fmean

from router.backtest.arrivals import Arrival
from router.backtest.fleet import EngineMachine
from wafer_engine.batching.cost_model import StepShape


def capacity_of(machine: EngineMachine, arrivals: Sequence[Arrival]) -> float:
    """Returns output tokens per second in a full batch of the trace's mean tasks.

    Where prompts are more than a step takes beside them, a token waits for so many steps.
    """
    prompt = fmean(one.prompt_tokens for one in arrivals)
    output = max(1.0, fmean(_output(one) for one in arrivals))
    limits = machine.cost.limits
    held = limits.kv_capacity_tokens / (prompt + output)
    num_seqs = max(1, int(min(held, limits.max_num_seqs)))
    prefill = num_seqs * prompt / output
    num_steps = max(1.0, prefill / limits.max_num_batched_tokens)
    prefill /= num_steps
    shape = StepShape(
        num_seqs,
        round(num_seqs * (prompt + output / 2)),
        round(prefill),
        round(prefill * (prompt + 1) / 2),
    )
    return num_seqs / max(1.0, num_steps * machine.cost.step_us(shape)) * 1e6


def _output(arrival: Arrival) -> float:
    lengths = [length.output_tokens for _, length in arrival.lengths]
    return fmean(lengths) if lengths else float(arrival.expected_output_tokens)
