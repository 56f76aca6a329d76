"""Computes a prompt on the mesh at once: nine matrix products a layer, each of P shift steps.

Tokens are cut by rows, dimensions by columns. A head's dimensions are spread over all columns,
rotary pairs together, so scores and values are products like the others; all heads shift as one.
Norms and the softmax add four allreduces a layer of one number per token. The KV cache is then
laid out anew for decoding, on another grid in the measured code: nobody published what that
costs, and it is not counted.
"""

import numpy as np
import numpy.typing as npt

from wafer_engine.mesh.mesh import Array, Mesh
from wafer_engine.mesh.transformer import MeshTransformer, pick, rope_angles, silu, turn
from wafer_engine.mesh.weights import LayerWeights, TransformerShape


def prefill(model: MeshTransformer, tokens: list[int]) -> Array:
    """Takes a whole prompt in and returns the logits after its last token: shape (vocab,).

    Raises ValueError if it is empty, or the model has taken tokens in before.
    """
    if not tokens:
        raise ValueError("a prompt needs at least one token")
    mesh, weights = model.mesh, model.weights
    hidden = mesh.cut_matrix(weights.embedding[np.array(tokens)])
    layout = _Layout(mesh.side, weights.shape, hidden.shape[2], len(tokens))
    keys, values = [], []
    for layer in weights.layers:
        hidden, key, value = _layer(mesh, layer, hidden, layout)
        keys.append(key)
        values.append(value)
    model.take(keys, values)
    row, offset = divmod(len(tokens) - 1, hidden.shape[2])
    return model.logits(hidden[row, :, offset])


class _Layout:
    """Maps the dimensions of heads and the positions of tokens to PEs."""

    def __init__(self, side: int, shape: TransformerShape, rows: int, num_tokens: int) -> None:
        self.side, self.shape, self.rows, self.num_tokens = side, shape, rows, num_tokens
        half = shape.head_dim // 2
        pairs = np.arange(side * -(-half // side)).reshape(side, -1)
        idle = pairs >= half
        within = np.concatenate([pairs, pairs + half], axis=1)
        within[np.concatenate([idle, idle], axis=1)] = -1
        self.query = self._of_heads(shape.num_heads, within)
        self.kv = self._of_heads(shape.num_kv_heads, within)
        positions = np.arange(side * rows)
        angles = rope_angles(shape, positions).reshape(side, rows, half)
        picked = angles[:, :, np.where(idle, 0, pairs)].transpose(0, 2, 1, 3)
        # The axes are row, column, head (all alike), token, pair.
        self.cos, self.sin = np.cos(picked)[:, :, None], np.sin(picked)[:, :, None]
        query, key = positions.reshape(side, 1, 1, rows, 1), positions.reshape(1, side, 1, 1, rows)
        self.hidden_from = (key > query) | (key >= num_tokens)

    def _of_heads(self, heads: int, within: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Indexes every (column, head, dimension), with -1 where a column is idle."""
        first = np.arange(heads)[None, :, None] * self.shape.head_dim
        return np.where(within[:, None] >= 0, first + within[:, None], -1)


def _layer(
    mesh: Mesh, layer: LayerWeights, hidden: Array, layout: _Layout
) -> tuple[Array, Array, Array]:
    """Returns a layer's tiles, rotated keys, and values: the last two (tokens, KV heads x size)."""
    shape = layout.shape
    normed = _norm(mesh, hidden, layer.attention_norm, shape)
    query = _heads(mesh, normed, layer.query, layer.query_bias, layout.query)
    key = _heads(mesh, normed, layer.key, layer.key_bias, layout.kv)
    value = _heads(mesh, normed, layer.value, layer.value_bias, layout.kv)
    query, key = turn(query, layout.cos, layout.sin), turn(key, layout.cos, layout.sin)
    mixed = _attend(mesh, query, key, value, layout)
    output = pick(layer.output.T, layout.query).reshape(layer.output.shape[1], -1).T
    hidden = hidden + mesh.gemm(mixed, mesh.cut_matrix(output))
    normed = _norm(mesh, hidden, layer.ffn_norm, shape)
    gate, up = (mesh.gemm(normed, mesh.cut_matrix(part)) for part in (layer.gate, layer.up))
    hidden = hidden + mesh.gemm(silu(gate) * up, mesh.cut_matrix(layer.down))
    return hidden, _gathered(key, layout), _gathered(value, layout)


def _norm(mesh: Mesh, hidden: Array, gain: Array, shape: TransformerShape) -> Array:
    total = mesh.allreduce((hidden**2).sum(axis=-1), along="columns")
    scale = 1.0 / np.sqrt(total / shape.hidden + shape.norm_epsilon)
    return np.asarray(hidden * scale[:, None, :, None] * mesh.cut_vector(gain)[None, :, None, :])


def _heads(
    mesh: Mesh, normed: Array, matrix: Array, bias: Array, index: npt.NDArray[np.int64]
) -> Array:
    """Projects by head: shape (side, side, heads, rows, dimensions)."""
    side, heads, width = index.shape
    weights = mesh.cut_matrix(pick(matrix, index).reshape(len(matrix), -1))
    joined = mesh.gemm(normed, weights).reshape(side, side, -1, heads, width)
    return np.asarray((joined + pick(bias[None, :], index)[:, :, None]).swapaxes(2, 3))


def _attend(mesh: Mesh, query: Array, key: Array, value: Array, layout: _Layout) -> Array:
    group = layout.shape.num_heads // layout.shape.num_kv_heads
    # The measured code gains nothing from grouped heads, and neither does this. Its product takes K
    # as it lies; here the tiles are turned first, which moves as much.
    key, value = key.repeat(group, axis=2), value.repeat(group, axis=2)
    scores = mesh.gemm(query, key.swapaxes(0, 1).swapaxes(-1, -2)) * layout.shape.head_dim**-0.5
    scores = np.where(layout.hidden_from, -np.inf, scores)
    highest = mesh.allreduce(scores.max(axis=-1), along="columns", operation="max")
    shares = np.exp(scores - highest[:, None, ..., None])
    total = mesh.allreduce(shares.sum(axis=-1), along="columns")
    mixed = mesh.gemm(shares / total[:, None, ..., None], value)
    return np.asarray(mixed.swapaxes(2, 3).reshape(layout.side, layout.side, layout.rows, -1))


def _gathered(heads: Array, layout: _Layout) -> Array:
    """Gathers keys or values from their tiles: shape (tokens, KV heads x head size)."""
    flat = heads.transpose(0, 3, 1, 2, 4).reshape(layout.side * layout.rows, -1)
    index = layout.kv.reshape(-1)
    whole = np.zeros((len(flat), layout.shape.num_kv_heads * layout.shape.head_dim))
    whole[:, index[index >= 0]] = flat[:, index >= 0]
    return whole[: layout.num_tokens]
