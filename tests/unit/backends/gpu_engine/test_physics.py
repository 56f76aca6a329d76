"""Tests what must hold of every constants set, card and model, whatever was fitted to what."""

import itertools

import msgspec
import pytest

from backends.gpu_engine.constants import ENGINES, FAR_BAND
from backends.gpu_engine.cost import GpuCost
from backends.gpu_engine.spec import GPUS, GpuSpec
from wafer_engine.batching.cost_model import StepShape
from wafer_engine.hardware.models import MODELS

WAYS = (1, 2, 4, 8)
LINKED = [gpu for gpu in GPUS.values() if gpu.has_switched_link]
HUGE = {"memory_bytes": 4e12}  # every model fits on one card: only times are of interest
DENSE = [model for model in MODELS.values() if model.moe is None and model.params_total_b >= 6.5]


def engines_of(gpu: GpuSpec) -> list[str]:
    """Returns the engines that have a set for a card."""
    found = []
    for name, engine in ENGINES.items():
        try:
            engine.for_gpu(gpu.name, link=gpu.link)
        except ValueError:
            continue
        found.append(name)
    return found


CASES = [(gpu, name) for gpu in GPUS.values() for name in engines_of(gpu)]
IDS = [f"{gpu.name}-{name}" for gpu, name in CASES]


@pytest.mark.parametrize(
    ("gpu", "engine"),
    [case for case in CASES if case[0] in LINKED],
    ids=[name for name, case in zip(IDS, CASES, strict=True) if case[0] in LINKED],
)
def test_more_gpus_are_never_slower_for_one_user(gpu: GpuSpec, engine: str) -> None:
    roomy = msgspec.structs.replace(gpu, **HUGE)
    for model, precision in itertools.product(DENSE, ("bf16", "fp8")):
        speeds = [
            GpuCost(roomy, model, tp=tp, precision=precision, engine=engine).tokens_per_s(1024)
            for tp in WAYS
        ]
        assert speeds == sorted(speeds), (model.name, precision, speeds)


@pytest.mark.parametrize(("gpu", "engine"), CASES, ids=IDS)
def test_sweeps_are_monotone(gpu: GpuSpec, engine: str) -> None:
    roomy = msgspec.structs.replace(gpu, **HUGE)

    def cost(model: str = "Llama-3.1-8B", tp: int = 2, **changed: float) -> GpuCost:
        card = msgspec.structs.replace(roomy, **changed)
        return GpuCost(card, model, tp=tp, precision="bf16", engine=engine)

    for name, tp in itertools.product(("Llama-3.1-8B", "Qwen3-30B-A3B"), (1, 2)):
        one = cost(name, tp)
        batches = [one.step_us(StepShape(n, n * 1024)) for n in (1, 2, 3, 8, 32, 128, 256)]
        assert batches == sorted(batches)
        speeds = [one.tokens_per_s(1024, n) * n for n in (1, 2, 3, 8, 32, 128, 256)]
        assert speeds == sorted(speeds), "a larger batch makes more tokens in all"
        contexts = [one.step_us(StepShape(8, 8 * n)) for n in (1, 16, 1024, 8192, 131_072)]
        assert contexts == sorted(contexts)
        prompts = [
            one.step_us(StepShape(8, 8192, n, n * (n + 1) // 2)) for n in (0, 1, 64, 512, 2048)
        ]
        assert prompts == sorted(prompts)
    for field in ("memory_bytes_per_s", "fp16_flops", "link_bytes_per_s"):
        times = [
            cost(**{field: getattr(gpu, field) * factor}).step_us(
                StepShape(32, 32_768, 512, 131_328)
            )
            for factor in (0.5, 0.8, 1.0, 1.5, 4.0)
        ]
        assert times == sorted(times, reverse=True), field
    sizes = ("Llama-3.2-1B", "Llama-3.2-3B", "Llama-3.1-8B", "Llama-2-13B", "Llama-3.1-70B")
    steps = [cost(name).step_us(StepShape(1, 1024)) for name in sizes if name in MODELS]
    assert steps == sorted(steps)


@pytest.mark.parametrize("name", ENGINES)
def test_times_of_the_host_belong_to_the_release(name: str) -> None:
    # Splitwise's two hosts are a generation apart, and 42 rows of each tell them from each other.
    least = 0.5 if name == "vllm_2023" else 1.0
    fitted = [one for one in ENGINES[name].sets if one.rows]
    for field in ("step_us", "layer_us", "seq_us", "launch_us"):
        values = [getattr(one, field) for one in fitted]
        assert min(values) >= least * max(values), field


@pytest.mark.parametrize(("gpu", "engine"), CASES, ids=IDS)
def test_gpus_exchange_at_a_cost(gpu: GpuSpec, engine: str) -> None:
    one, two = (
        GpuCost(
            msgspec.structs.replace(gpu, **HUGE),
            "Llama-3.1-8B",
            tp=tp,
            precision="bf16",
            engine=engine,
        )
        for tp in (1, 2)
    )
    assert two.tokens_per_s(1024) < 2 * one.tokens_per_s(1024)


def test_a_set_taken_over_says_from_where_and_how_far_off_it_may_be() -> None:
    taken = [
        one for engine in ENGINES.values() for one in engine.sets if one.basis and not one.rows
    ]
    assert taken
    for one in taken:
        assert "taken over" in one.label
        assert "within about" in one.label, one.basis


def test_a_cards_own_set_says_only_that_it_is_far_off() -> None:
    own = [one for engine in ENGINES.values() for one in engine.sets if one.rows and not one.basis]
    far = [one for one in own if one.band >= FAR_BAND]
    assert far, "vLLM 0.7 on the H100"
    assert all("off its own measurements by about" in one.label for one in far)
    assert not any(one.label for one in own if one.band < FAR_BAND)


@pytest.mark.parametrize("name", ENGINES)
def test_a_set_taken_over_is_no_nearer_than_it_is_for_its_own_card(name: str) -> None:
    sets = ENGINES[name].sets
    for taken in sets:
        for own in sets:
            if own.rows and any(f"from {gpu}:" in taken.basis for gpu in own.gpus):
                assert taken.band >= own.band, taken.gpus
