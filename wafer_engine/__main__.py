"""Runs the wafer engine from the command line.

python -m wafer_engine speed --model Llama-3.3-70B
python -m wafer_engine place --model Llama-3.3-70B --out llama.svg
python -m wafer_engine models
python -m wafer_engine decode --weights FOLDER --prompt "def add(" --side 8
python -m wafer_engine validate [--rows FILE]
python -m wafer_engine calibrate [--rows FILE] [--out FOLDER]
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from wafer_engine.batching.speculation import asked_speculation
from wafer_engine.calibration.calibrate import calibrate, leave_models_out
from wafer_engine.calibration.commands import add_commands, run_command
from wafer_engine.calibration.fit import write_constants
from wafer_engine.calibration.placement_picture import placement_table, png, svg
from wafer_engine.calibration.rows import read_reference
from wafer_engine.calibration.validate import validation_report
from wafer_engine.hardware.cost import DEFAULT_MODEL, WaferCost
from wafer_engine.hardware.model_config import model_named
from wafer_engine.hardware.models import MODELS
from wafer_engine.hardware.placement import place
from wafer_engine.hardware.spec import WSE3, find_wafer
from wafer_engine.mesh.mesh import Mesh
from wafer_engine.mesh.prefill import prefill
from wafer_engine.mesh.tokenizer import FileTokenizer
from wafer_engine.mesh.transformer import LOGIT_TOLERANCE, MeshTransformer, reference_logits
from wafer_engine.mesh.weights import load_model

CONSTANTS_FOLDER = Path(__file__).parent / "hardware" / "constants"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status."""
    return run_command(_parser(), arguments, "wafer_engine: ")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m wafer_engine",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    speed = commands.add_parser("speed", help="what the cost model says of a model")
    speed.set_defaults(run=_speed)
    layout = commands.add_parser("place", help="lay a model out; print a table, draw a picture")
    layout.set_defaults(run=_place)
    layout.add_argument("--kv-tokens", type=int, default=0, help="KV cache it must hold at least")
    layout.add_argument("--out", help="picture to write: .svg or .png")
    for command in (speed, layout):
        command.add_argument("--model", default=DEFAULT_MODEL)
        command.add_argument("--wafer", default="WSE-3", help="WSE-2, WSE-3, CS-2 or CS-3")
        command.add_argument("--wafers", type=int, help="as many as needed where not given")
        command.add_argument("--bits", type=float, default=16.0, help="of a weight: 16, 8 or 4")
        command.add_argument("--kv-bits", type=float, default=16.0)
    speed.add_argument("--clock-ghz", type=float, help="the wafer's where not given")
    speed.add_argument("--window", type=int, help="sparse attention to so many tokens")
    speed.add_argument("--draft-tokens", type=int, help="the service's where not given; 0: none")
    speed.add_argument("--acceptance", type=float, help="chance that a drafted token is right")
    speed.add_argument("--draft-cost", type=float, help="of one drafted token, in passes")
    models = commands.add_parser("models", help="list the model shapes that have a name")
    models.set_defaults(run=_models)
    decode = commands.add_parser("decode", help="compute a small model on the simulated mesh")
    decode.set_defaults(run=_decode)
    decode.add_argument("--weights", required=True, help="folder with config.json and safetensors")
    decode.add_argument("--prompt", required=True)
    decode.add_argument("--tokens", type=int, default=16, help="how many to generate")
    decode.add_argument("--side", type=int, default=8, help="PEs per side of the mesh")
    validate, fit = add_commands(commands, "wse.csv", CONSTANTS_FOLDER)
    validate.set_defaults(run=_validate)
    fit.set_defaults(run=_calibrate)
    return parser


def _speed(options: argparse.Namespace) -> None:
    cost = WaferCost(
        options.model,
        wafer=options.wafer,
        num_wafers=options.wafers,
        weight_bits=options.bits,
        kv_bits=options.kv_bits,
        clock_hz=None if options.clock_ghz is None else options.clock_ghz * 1e9,
        attention_window_tokens=options.window,
        speculation=asked_speculation(options.draft_tokens, options.acceptance, options.draft_cost),
    )
    limits, draft = cost.limits, cost.speculation
    print(
        f"{cost.model.name}, {options.bits:g}-bit weights, on {cost.num_wafers} x "
        f"{cost.wafer.name}: up to {limits.max_num_seqs} sequences at full speed, KV cache for "
        f"{limits.kv_capacity_tokens:,} tokens"
    )
    print(
        f"draft: {draft.draft_tokens} tokens at acceptance {draft.acceptance:g}, "
        f"{draft.tokens_per_pass:.2f} tokens a pass; rated power {cost.wafer.power_w / 1e3:g} kW "
        f"a system; +-{45 if cost.model.moe else 30} % for a model without a published row"
    )
    print("context  sequences  tokens/s each   J/token")
    for context in (1024, 8192, 32_768):
        full = cost.full_speed_seqs(context)
        held = limits.kv_capacity_tokens // context
        if not full:
            print(f"{context:7,}  does not fit: KV cache for {limits.kv_capacity_tokens:,} tokens")
        elif full < limits.max_num_seqs:
            print(f"{context:7,}  at most {held} at a time: the KV cache holds no more")
        for num_seqs in sorted({1, full, 2 * limits.max_num_seqs}):
            if not 0 < num_seqs <= held:
                continue
            print(
                f"{context:7,}  {num_seqs:9}  {cost.tokens_per_s(context, num_seqs):13,.0f}  "
                f"{cost.joules_per_token(context, num_seqs):8,.1f}"
            )


def _models(_options: argparse.Namespace) -> None:
    print(
        f"{'model':30}  {'params, B':>9}  {'active':>6}  {'layers':>6}  {'KV B/token':>10}  source"
    )
    for name, model in MODELS.items():
        print(
            f"{name:30}  {model.params_total_b:9,.1f}  {model.params_active_b:6,.1f}  "
            f"{model.num_layers:6}  {model.kv_bytes_per_token():10,.0f}  {model.source}"
        )


def _place(options: argparse.Namespace) -> None:
    out = Path(options.out) if options.out else None
    if out is not None and out.suffix.lower() not in (".svg", ".png"):
        raise ValueError(f"--out {out}: a picture is written, so name it .svg or .png")
    placement = place(
        model_named(options.model),
        wafer=find_wafer(options.wafer),
        num_wafers=options.wafers,
        weight_bits=options.bits,
        kv_bits=options.kv_bits,
        kv_tokens=options.kv_tokens,
    )
    print(placement_table(placement))
    if out is not None:
        drawn = png(placement) if out.suffix.lower() == ".png" else svg(placement).encode()
        out.write_bytes(drawn)
        print(f"wrote {out}")


def _decode(options: argparse.Namespace) -> None:
    if options.tokens < 1:
        raise ValueError(f"--tokens {options.tokens}: expected 1 or more")
    folder = Path(options.weights)
    weights, tokenizer = load_model(folder), FileTokenizer(folder / "tokenizer.json")
    tokens = tokenizer.encode(options.prompt)
    if not tokens:
        raise ValueError("the prompt has no tokens")
    mesh = Mesh(options.side)
    model = MeshTransformer(mesh, weights)
    logits = prefill(model, tokens)
    reference = reference_logits(weights, tokens)
    error = float(np.abs(logits - reference).max() / np.abs(reference).max())
    print(f"logits after the prompt differ from plain numpy by {error:.1e} of the largest")
    if error > LOGIT_TOLERANCE:
        raise ValueError(f"expected at most {LOGIT_TOLERANCE:g}")
    generated = [int(np.argmax(logits))]
    while len(generated) < options.tokens:
        generated.append(int(np.argmax(model.decode(generated[-1]))))
    print(options.prompt + tokenizer.decode(generated))
    counts = mesh.counts
    print(
        f"per PE: {counts.macs:,} multiply-accumulates, {counts.vector_starts:,} vector starts; "
        f"{counts.steps:,} compute-shift steps, {counts.allreduces:,} allreduces, "
        f"{counts.stages:,} stages, {counts.hops:,} hops, "
        f"{counts.words:,} words on the busiest link; {counts.ideal_cycles(WSE3):,.0f} cycles of a "
        "WSE-3 at least"
    )


def _validate(options: argparse.Namespace) -> None:
    _, rows = read_reference("wse.csv", options.rows)
    print(validation_report(rows, leave_models_out(rows)))


def _calibrate(options: argparse.Namespace) -> None:
    _, rows = read_reference("wse.csv", options.rows)
    for written in write_constants(Path(options.out), calibrate(rows)):
        print(f"wrote {written}")


if __name__ == "__main__":
    sys.exit(main())
