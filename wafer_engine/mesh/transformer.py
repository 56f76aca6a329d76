"""Decodes a small transformer twice: on the mesh, and in plain numpy to compare it with.

On the mesh the hidden vector is cut by rows and copied along them. Products turn the cut, so
Q, K and V come out by columns, the attention's sum over dimensions runs along rows, its sum over
tokens along columns, and the output product brings the hidden vector back. Ten allreduces a layer:
two norms, QKV, scores, the softmax's maximum and sum, values, output, gate with up, down.
"""

import numpy as np
import numpy.typing as npt

from wafer_engine.mesh.mesh import Array, Mesh, ShiftedCache
from wafer_engine.mesh.weights import LayerWeights, TransformerShape, TransformerWeights

# Double precision, sums in another order: logits agree to this, relative to their largest.
LOGIT_TOLERANCE = 1e-9


def reference_logits(weights: TransformerWeights, tokens: list[int]) -> Array:
    """Computes the logits after the last token by plain numpy: shape (vocab,)."""
    shape = weights.shape
    hidden = weights.embedding[np.array(tokens)]
    for layer in weights.layers:
        normed = _norm(hidden, layer.attention_norm, shape.norm_epsilon)
        hidden = hidden + _reference_attention(normed, layer, shape) @ layer.output
        normed = _norm(hidden, layer.ffn_norm, shape.norm_epsilon)
        hidden = hidden + (silu(normed @ layer.gate) * (normed @ layer.up)) @ layer.down
    last = _norm(hidden[-1:], weights.final_norm, shape.norm_epsilon)
    return np.asarray((last @ weights.head)[0])


def _reference_attention(normed: Array, layer: LayerWeights, shape: TransformerShape) -> Array:
    count = len(normed)
    angles = rope_angles(shape, np.arange(count))
    query = (normed @ layer.query + layer.query_bias).reshape(count, shape.num_heads, -1)
    key = (normed @ layer.key + layer.key_bias).reshape(count, shape.num_kv_heads, -1)
    value = (normed @ layer.value + layer.value_bias).reshape(count, shape.num_kv_heads, -1)
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    query, key = turn(query, cos, sin), turn(key, cos, sin)
    group = shape.num_heads // shape.num_kv_heads
    key, value = key.repeat(group, axis=1), value.repeat(group, axis=1)
    scores = np.einsum("qhd,khd->hqk", query, key) * shape.head_dim**-0.5
    scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return np.asarray(np.einsum("hqk,khd->qhd", shares, value).reshape(count, -1))


def rope_angles(shape: TransformerShape, positions: npt.NDArray[np.int64]) -> Array:
    """Returns rotary angles, shape (positions, head_dim / 2)."""
    half = shape.head_dim // 2
    rates = shape.rope_base ** (-np.arange(half) / half)
    return np.asarray(positions[:, None] * rates[None, :])


def _norm(hidden: Array, gain: Array, epsilon: float) -> Array:
    return np.asarray(hidden / np.sqrt(np.mean(hidden**2, axis=-1, keepdims=True) + epsilon) * gain)


def silu(values: Array) -> Array:
    """Computes the gate's nonlinearity: x times its logistic."""
    return values / (1.0 + np.exp(-values))


class MeshTransformer:
    """Lays a model out on a mesh and decodes one sequence, token by token.

    Heads are dealt to columns whole: column j has every query head of its KV heads. Where columns
    outnumber KV heads, several columns share a head, each with an even part of its dimensions;
    rotary pairs stay together.
    """

    def __init__(self, mesh: Mesh, weights: TransformerWeights) -> None:
        """Cuts the weights; raises ValueError if half a head does not divide among its columns."""
        self.mesh = mesh
        self.weights = weights
        self._shape = weights.shape
        self._dims = _ColumnDims(mesh.side, weights.shape)
        self._layers = [_MeshLayer(mesh, layer, self._dims) for layer in weights.layers]
        self._final_norm = mesh.cut_vector(weights.final_norm)
        self._head = mesh.cut_matrix(weights.head)
        self.num_tokens = 0

    def decode(self, token: int) -> Array:
        """Takes one token in and returns the logits after it: shape (vocab,)."""
        shape = self._shape
        hidden = self.mesh.cut_vector(self.weights.embedding[token])
        angles = rope_angles(shape, np.array([self.num_tokens]))[0]
        for layer in self._layers:
            hidden = layer.decode(hidden, angles, shape)
        self.num_tokens += 1
        return self.logits(hidden)

    def logits(self, hidden: Array) -> Array:
        """Computes the logits of a hidden vector that is cut by rows."""
        normed = mesh_norm(self.mesh, hidden, self._final_norm, self._shape)
        logits = self.mesh.gemv(normed, self._head, cut="rows")
        return logits.reshape(-1)[: self._shape.vocab]

    def take(self, keys: list[Array], values: list[Array]) -> None:
        """Starts after a prompt, with its KV cache by layer, (tokens, KV heads x head size) each.

        Raises ValueError if there are tokens already.
        """
        if self.num_tokens:
            raise ValueError(f"a prompt comes first, {self.num_tokens} tokens were taken in")
        for layer, key, value in zip(self._layers, keys, values, strict=True):
            layer.take(key, value)
        self.num_tokens = len(keys[0])

    def tokens_per_row(self) -> list[int]:
        return [len(row) for row in self._layers[0].cache.rows]


def mesh_norm(mesh: Mesh, hidden: Array, gain: Array, shape: TransformerShape) -> Array:
    """Applies the RMS norm to a vector cut by rows: one allreduce of one number."""
    squares = np.repeat((hidden**2).sum(axis=1)[:, None, None], mesh.side, axis=1)
    total = mesh.allreduce(squares, along="rows")[0, 0]
    return np.asarray(hidden / np.sqrt(total / shape.hidden + shape.norm_epsilon) * gain)


class _ColumnDims:
    """Assigns dimensions of queries, keys and values to columns of PEs."""

    def __init__(self, side: int, shape: TransformerShape) -> None:
        kv_heads, half = shape.num_kv_heads, shape.head_dim // 2
        self.group = shape.num_heads // kv_heads
        heads_per_column, sharing = -(-kv_heads // side), max(1, side // kv_heads)
        if half % sharing:
            raise ValueError(
                f"{side} columns for {kv_heads} KV heads leave {sharing} to share a head, "
                f"which does not divide half of its {shape.head_dim} dimensions: "
                f"choose another side"
            )
        part = half // sharing
        self.heads = heads_per_column  # KV heads per column, whole or shared
        self.width = 2 * part  # dimensions of each on one column
        # Index of every (column, head, dimension), -1 where a column is idle.
        self.kv = np.full((side, heads_per_column, 2 * part), -1)
        self.angle = np.zeros((side, part), dtype=np.int64)
        for column in range(side):
            first, share = column // sharing * heads_per_column, column % sharing
            low = np.arange(share * part, (share + 1) * part)
            self.angle[column] = low
            for offset in range(heads_per_column):
                if first + offset < kv_heads:
                    base = (first + offset) * shape.head_dim
                    self.kv[column, offset] = base + np.concatenate([low, low + half])
        self.head_of = np.where(self.kv[..., 0] >= 0, self.kv[..., 0] // shape.head_dim, -1)
        first_query = self.kv + (self.group - 1) * (self.kv // shape.head_dim) * shape.head_dim
        query = [
            np.where(self.kv >= 0, first_query + member * shape.head_dim, -1)
            for member in range(self.group)
        ]
        self.query = np.stack(query, axis=2)  # column, KV head, member of its group, dimension


class _MeshLayer:
    def __init__(self, mesh: Mesh, layer: LayerWeights, dims: _ColumnDims) -> None:
        self._mesh = mesh
        self._dims = dims
        self._attention_norm = mesh.cut_vector(layer.attention_norm)
        self._ffn_norm = mesh.cut_vector(layer.ffn_norm)
        side = mesh.side
        query, kv = dims.query.reshape(side, -1), dims.kv.reshape(side, -1)
        self._splits = np.cumsum([query.shape[1], kv.shape[1]])
        # Products are fused: one allreduce serves Q, K and V, another gate and up.
        indices = (query, kv, kv)
        matrices = map(pick, (layer.query, layer.key, layer.value), indices)
        joined = np.concatenate([*matrices], axis=2)
        self._qkv = mesh.cut_matrix(joined.reshape(len(layer.query), -1))
        rows = (bias[None, :] for bias in (layer.query_bias, layer.key_bias, layer.value_bias))
        biases = [picked[0] for picked in map(pick, rows, indices)]
        self._qkv_bias = np.concatenate(biases, axis=1)
        self._output = mesh.cut_matrix(
            pick(layer.output.T, query).reshape(layer.output.shape[1], -1).T, transposed=True
        )
        gate, up = mesh.cut_matrix(layer.gate), mesh.cut_matrix(layer.up)
        self._gate_up = np.concatenate([gate, up], axis=3)
        self._down = mesh.cut_matrix(layer.down, transposed=True)
        self.cache = ShiftedCache(mesh, 2 * kv.shape[1])
        self._keys: list[Array] = []  # by token: shape (columns, heads, dimensions)
        self._values: list[Array] = []

    def take(self, keys: Array, values: Array) -> None:
        """Holds a prompt's KV: rows of tokens, with keys already rotated."""
        self.cache.fill(len(keys))
        self._keys, self._values = (list(pick(part, self._dims.kv)) for part in (keys, values))

    def decode(self, hidden: Array, angles: Array, shape: TransformerShape) -> Array:
        """Runs one token through the layer; hidden is cut by rows, before and after."""
        mesh = self._mesh
        normed = mesh_norm(mesh, hidden, self._attention_norm, shape)
        joined = mesh.gemv(normed, self._qkv, cut="rows", products=3) + self._qkv_bias
        mixed = self._attend(joined, angles, shape)
        hidden = hidden + mesh.gemv(mixed, self._output, cut="columns")
        normed = mesh_norm(mesh, hidden, self._ffn_norm, shape)
        gate, up = np.split(mesh.gemv(normed, self._gate_up, cut="rows", products=2), 2, axis=1)
        return hidden + mesh.gemv(silu(gate) * up, self._down, cut="columns")

    def _attend(self, joined: Array, angles: Array, shape: TransformerShape) -> Array:
        """Attends over the cache; joined and the result are cut by columns."""
        dims, side = self._dims, self._mesh.side
        query, key, value = np.split(joined, self._splits, axis=1)
        query = query.reshape(side, dims.heads, dims.group, dims.width)
        key = key.reshape(side, dims.heads, dims.width)
        cos, sin = np.cos(angles[dims.angle]), np.sin(angles[dims.angle])
        query = turn(query, cos[:, None, None], sin[:, None, None])
        self._keys.append(turn(key, cos[:, None], sin[:, None]))
        self._values.append(value.reshape(side, dims.heads, dims.width))
        self.cache.append()
        # Token numbers by row, -1 where a row holds fewer than the fullest: shape (side, s).
        longest = max(len(row) for row in self.cache.rows)
        tokens = np.array([row + [-1] * (longest - len(row)) for row in self.cache.rows])
        scores = self._scores(query, tokens, shape)
        return self._mix(scores, tokens).reshape(side, -1)

    def _scores(
        self, query: Array, tokens: npt.NDArray[np.int64], shape: TransformerShape
    ) -> Array:
        """Returns softmax shares of each row's tokens: shape (side, KV heads, group, s)."""
        mesh, dims = self._mesh, self._dims
        keys = np.stack(self._keys)[tokens]  # row, s, column, head, dimension
        partial = np.einsum("jhgd,isjhd->ijhgs", query, keys)
        slots = tokens.shape[1]
        dims_per_pe = dims.heads * dims.group * dims.width
        mesh.counts.macs += dims_per_pe * slots
        mesh.counts.vector_starts += dims_per_pe
        # Every PE adds into its own heads' slots; the sum along the row leaves all heads complete.
        by_head = np.zeros((mesh.side, mesh.side, shape.num_kv_heads, dims.group, slots))
        for column in range(mesh.side):
            for offset, head in enumerate(dims.head_of[column]):
                if head >= 0:
                    by_head[:, column, head] = partial[:, column, offset]
        scores = mesh.allreduce(by_head, along="columns") * shape.head_dim**-0.5
        scores = np.where(tokens[:, None, None, :] >= 0, scores, -np.inf)
        copied = np.repeat(scores.max(axis=-1)[:, None], mesh.side, axis=1)
        highest = mesh.allreduce(copied, along="rows", operation="max")[0]
        shares = np.exp(scores - highest[None, ..., None])
        copied = np.repeat(shares.sum(axis=-1)[:, None], mesh.side, axis=1)
        total = mesh.allreduce(copied, along="rows")[0]
        return np.asarray(shares / total[None, ..., None])

    def _mix(self, shares: Array, tokens: npt.NDArray[np.int64]) -> Array:
        """Sums values weighted by shares over all rows: shape (side, heads, group, width)."""
        mesh, dims = self._mesh, self._dims
        values = np.stack(self._values)[tokens]
        own = np.where(dims.head_of < 0, 0, dims.head_of)
        picked = shares[:, own]  # row, column, head, group, s
        partial = np.einsum("ijhgs,isjhd->ijhgd", picked, values)
        mesh.counts.macs += dims.heads * dims.group * dims.width * tokens.shape[1]
        mesh.counts.vector_starts += tokens.shape[1]
        return mesh.allreduce(partial, along="rows")


def turn(heads: Array, cos: Array, sin: Array) -> Array:
    """Rotates the two halves of every head, or of a part of it, against each other."""
    low, high = np.split(heads, 2, axis=-1)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def pick(matrix: Array, index: npt.NDArray[np.int64]) -> Array:
    """Picks columns of a matrix by index, zeros for -1: shape (inputs, *index.shape)."""
    return np.where(index >= 0, matrix[:, np.where(index >= 0, index, 0)], 0.0)
