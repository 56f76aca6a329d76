"""The mesh computes what numpy computes, and counts what the closed forms say."""

import math

import numpy as np
import pytest

from tests.unit.wafer_engine.mesh.random_weights import random_weights
from wafer_engine.hardware.constants import WSE3_CONSTANTS
from wafer_engine.hardware.cost import ALLREDUCES_DENSE
from wafer_engine.hardware.spec import WSE3
from wafer_engine.mesh.kernels import (
    PRODUCTS_PER_LAYER,
    Tiling,
    gemm_cycles,
    gemv_cycles,
)
from wafer_engine.mesh.mesh import (
    Mesh,
    ShiftedCache,
    group_sizes,
    interleaved_ring,
    longest_ring_link,
)
from wafer_engine.mesh.prefill import prefill
from wafer_engine.mesh.transformer import LOGIT_TOLERANCE, MeshTransformer, reference_logits
from wafer_engine.mesh.weights import TransformerShape

SIDES = (1, 2, 3, 4, 5, 8, 12, 16)


def untile(tiles: np.ndarray) -> np.ndarray:
    side, _, rows, columns = tiles.shape
    return tiles.transpose(0, 2, 1, 3).reshape(side * rows, side * columns)


@pytest.mark.parametrize("side", SIDES)
def test_products_equal_numpy(side: int) -> None:
    rng = np.random.default_rng(side)
    left, right = rng.normal(size=(13, 9)), rng.normal(size=(9, 17))
    vector = rng.normal(size=13)
    mesh = Mesh(side)
    product = untile(mesh.gemm(mesh.cut_matrix(left), mesh.cut_matrix(right)))
    np.testing.assert_allclose(product[:13, :17], left @ right, atol=1e-12)
    by_rows = mesh.gemv(mesh.cut_vector(vector), mesh.cut_matrix(left), cut="rows")
    np.testing.assert_allclose(by_rows.reshape(-1)[:9], vector @ left, atol=1e-12)
    turned = mesh.cut_matrix(left, transposed=True)
    by_columns = mesh.gemv(mesh.cut_vector(vector), turned, cut="columns")
    np.testing.assert_allclose(by_columns.reshape(-1)[:9], vector @ left, atol=1e-12)


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("side", SIDES)
def test_allreduce(side: int, levels: int) -> None:
    rng = np.random.default_rng(side)
    tiles = rng.normal(size=(side, side, 3))
    mesh = Mesh(side, levels=levels)
    np.testing.assert_allclose(mesh.allreduce(tiles, along="rows"), tiles.sum(axis=0))
    np.testing.assert_allclose(
        mesh.allreduce(tiles, along="columns", operation="max"), tiles.max(axis=1)
    )


@pytest.mark.parametrize("side", [16, 64, 100, 144, 256])
def test_allreduce_counts_follow_the_closed_form(side: int) -> None:
    """It has K P^(1/K) / 2 stages and about P hops, for which `allreduce + hop * side` stands."""
    mesh = Mesh(side)
    mesh.allreduce(np.ones((side, side, 1)), along="rows")
    root = math.sqrt(side)
    assert mesh.counts.stages == sum(size // 2 for size in group_sizes(side, 2))
    assert mesh.counts.stages == pytest.approx(root, abs=2)
    assert side - 1 <= mesh.counts.hops <= side + 2 * root


def test_two_levels_need_far_fewer_stages_than_one() -> None:
    flat, tree = Mesh(256, levels=1), Mesh(256)
    for mesh in (flat, tree):
        mesh.allreduce(np.ones((256, 256, 1)), along="rows")
    assert flat.counts.stages == 128
    assert tree.counts.stages == 16


@pytest.mark.parametrize("side", SIDES)
def test_ring_neighbours_are_at_most_two_links_apart(side: int) -> None:
    ring = interleaved_ring(side)
    assert sorted(ring) == list(range(side))
    assert longest_ring_link(ring) <= 2


@pytest.mark.parametrize("side", [2, 4, 8])
def test_a_layers_prefill_counts_equal_the_closed_form(side: int) -> None:
    """It has nine products of P compute-shift steps: macs and steps exact, hops within a bound."""
    weights = random_weights(TransformerShape(1, 64, 4, 4, 16, 128, 48), np.random.default_rng(3))
    mesh = Mesh(side)
    s = 3
    prefill(MeshTransformer(mesh, weights), list(range(s * side)))
    tiling = Tiling(side, 64, s * side, 128)
    head = 64 // side * (48 // side)
    assert mesh.counts.steps == PRODUCTS_PER_LAYER * side
    assert mesh.counts.macs == side * tiling.macs_per_row * s + head
    assert mesh.counts.vector_starts == side * tiling.macs_per_row + 64 // side
    # Beside the products: two norms, the softmax's maximum and sum; the final norm and the head.
    assert mesh.counts.allreduces == 6
    allreduce_hops = side + 2 * math.isqrt(side) + 1
    assert mesh.counts.hops <= PRODUCTS_PER_LAYER * 3 * side + 6 * allreduce_hops


@pytest.mark.parametrize(("side", "length"), [(24, 6), (60, 6), (120, 6), (120, 12), (240, 3)])
def test_counted_cycles_bound_the_closed_forms_from_below(side: int, length: int) -> None:
    """The fitted kernels take one to five times an ideal machine; small grids start-up most."""
    gemv, gemm = WSE3_CONSTANTS.gemv, WSE3_CONSTANTS.gemm
    assert gemv is not None
    assert gemm is not None
    mesh = Mesh(side)
    mesh.gemv(np.ones((side, length)), np.ones((side, side, length, length)), cut="rows")
    ideal = mesh.counts.ideal_cycles(WSE3)
    assert 1.0 < gemv_cycles(length, side, gemv) / ideal < 5.0
    if side <= 60:
        mesh = Mesh(side)
        tiles = np.ones((side, side, length, length))
        mesh.gemm(tiles, tiles)
        ideal = mesh.counts.ideal_cycles(WSE3)
        assert 1.0 < gemm_cycles(length, side, gemm) / ideal < 5.0


@pytest.mark.parametrize("side", [1, 2, 3, 7, 8])
def test_cache_rows_stay_even_and_in_order(side: int) -> None:
    mesh = Mesh(side)
    cache = ShiftedCache(mesh, 4)
    for count in range(1, 60):
        cache.append()
        sizes = [len(row) for row in cache.rows]
        assert max(sizes) - min(sizes) <= 1
        assert [token for row in cache.rows for token in row] == list(range(count))
    # One link a token at most: rows pass up together.
    assert mesh.counts.hops <= 59


SHAPES = [  # side, layers, hidden, heads, KV heads, head size, FFN
    (1, 2, 32, 4, 4, 8, 64),
    (4, 2, 32, 4, 4, 8, 64),
    (4, 2, 40, 8, 2, 8, 72),
    (8, 1, 48, 4, 2, 16, 100),
    (3, 2, 30, 6, 3, 8, 50),
    (5, 2, 33, 4, 4, 8, 61),
]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_decoding_on_the_mesh_equals_numpy(case: tuple[int, ...]) -> None:
    side, layers, hidden, heads, kv_heads, head_dim, ffn = case
    rng = np.random.default_rng(7)
    weights = random_weights(
        TransformerShape(layers, hidden, heads, kv_heads, head_dim, ffn, 50), rng
    )
    mesh = Mesh(side)
    model = MeshTransformer(mesh, weights)
    tokens = [int(token) for token in rng.integers(0, 50, 9)]
    for count, token in enumerate(tokens, start=1):
        logits = model.decode(token)
        reference = reference_logits(weights, tokens[:count])
        assert np.abs(logits - reference).max() <= LOGIT_TOLERANCE * np.abs(reference).max()
    assert sum(model.tokens_per_row()) == len(tokens)


@pytest.mark.parametrize("num_tokens", [1, 4, 7])
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_a_prompt_prefilled_on_the_mesh_equals_numpy(
    case: tuple[int, ...], num_tokens: int
) -> None:
    side, layers, hidden, heads, kv_heads, head_dim, ffn = case
    rng = np.random.default_rng(11)
    weights = random_weights(
        TransformerShape(layers, hidden, heads, kv_heads, head_dim, ffn, 50), rng
    )
    model = MeshTransformer(Mesh(side), weights)
    tokens = [int(token) for token in rng.integers(0, 50, num_tokens + 3)]
    logits = prefill(model, tokens[:num_tokens])
    for count in range(num_tokens, len(tokens)):
        reference = reference_logits(weights, tokens[:count])
        assert np.abs(logits - reference).max() <= LOGIT_TOLERANCE * np.abs(reference).max()
        logits = model.decode(tokens[count])  # goes on from the prompt's KV cache
    held = model.tokens_per_row()
    assert sum(held) == len(tokens)
    assert max(held) - min(held) <= 1


def test_a_prompt_comes_first_and_is_not_empty() -> None:
    weights = random_weights(TransformerShape(1, 16, 2, 2, 8, 16, 10), np.random.default_rng(0))
    model = MeshTransformer(Mesh(2), weights)
    with pytest.raises(ValueError, match="at least one token"):
        prefill(model, [])
    model.decode(1)
    with pytest.raises(ValueError, match="1 tokens were taken in"):
        prefill(model, [1, 2])


@pytest.mark.parametrize("side", [2, 4, 8])
def test_a_layers_decode_counts_equal_the_closed_form(side: int) -> None:
    """Multi-head attention, run as the measured code does, has exactly the same counts."""
    weights = random_weights(TransformerShape(1, 64, 8, 8, 8, 128, 48), np.random.default_rng(3))
    mesh = Mesh(side)
    model = MeshTransformer(mesh, weights)
    for token in range(2 * side):
        mesh.counts.macs = mesh.counts.vector_starts = mesh.counts.allreduces = 0
        model.decode(token)
    tiling = Tiling(side, 64, 2 * side, 128)
    head_inputs, head_outputs = 64 // side, 48 // side
    assert mesh.counts.macs == tiling.macs_per_row + head_inputs * head_outputs
    assert mesh.counts.vector_starts == tiling.vectors_per_row + head_inputs
    assert mesh.counts.allreduces == ALLREDUCES_DENSE + 2  # the final norm and the head


def test_columns_that_cannot_share_a_head_are_refused() -> None:
    weights = random_weights(TransformerShape(1, 16, 2, 2, 4, 16, 10), np.random.default_rng(0))
    with pytest.raises(ValueError, match="choose another side"):
        MeshTransformer(Mesh(7), weights)
    with pytest.raises(ValueError, match="1 or more"):
        Mesh(0)
