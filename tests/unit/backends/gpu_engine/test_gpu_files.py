"""Tests a card, a model and a set of constants from files, wherever a name is taken."""

import json
from pathlib import Path

import msgspec
import pytest

from backends.gpu_engine.cost import GpuCost
from backends.gpu_engine.spec import find_gpu

MI300X = """
name = "MI300X"
fp16_flops = 1307e12
fp8_flops = 2614e12
memory_bytes = 206e9
memory_bytes_per_s = 5300e9
link = "nvlink4"
link_bytes_per_s = 448e9
domain_gpus = 8
power_w = 750
"""


def test_a_card_of_a_file_runs_under_every_engine_with_a_set_for_any(tmp_path: Path) -> None:
    path = tmp_path / "mi300x.toml"
    path.write_text(MI300X)
    cost = GpuCost(str(path), "Llama-3.3-70B", tp=2, engine="vllm_0_19")
    assert cost.gpu.name == "MI300X"
    assert "taken over from" in cost.fit.label
    assert cost.tokens_per_s(1024) > GpuCost("H100", tp=2, engine="vllm_0_19").tokens_per_s(1024)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("fp16_flops", "fp61_flops"), "fp61_flops"),
        (("1307e12", "-1.0"), "fp16_flops is -1.0: expected a number above 0"),
        (('"nvlink4"', '"ether"'), "link 'ether': expected one of"),
        (("name =", "name ="), None),
        (("memory_bytes = 206e9", "memory_bytes = 'many'"), "memory_bytes"),
        (("=", "=="), "mi300x.toml"),
    ],
)
def test_a_wrong_file_names_the_field(tmp_path: Path, change: tuple[str, str], reason) -> None:
    path = tmp_path / "mi300x.toml"
    path.write_text(MI300X.replace(*change))
    if reason is None:
        assert find_gpu(str(path)).power_w == 750
        return
    with pytest.raises(ValueError, match=reason):
        find_gpu(str(path))


def test_missing_files_are_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        find_gpu(str(tmp_path / "none.toml"))
    with pytest.raises(ValueError, match="No such file"):
        GpuCost("H100", str(tmp_path / "none.json"))
    with pytest.raises(ValueError, match="No such file"):
        GpuCost("H100", engine=str(tmp_path / "none.json"))


def test_a_card_may_be_written_as_our_own_are(tmp_path: Path) -> None:
    h100 = find_gpu("H100")
    lines = [
        f"{name} = {json.dumps(value)}" for name, value in msgspec.structs.asdict(h100).items()
    ]
    path = tmp_path / "h100.toml"
    path.write_text("\n".join(lines))
    assert find_gpu(str(path)) == h100
