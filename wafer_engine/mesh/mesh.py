"""Simulates a grid of processing elements that really computes, and counts its work.

Values live in tiles: an array whose first two axes are the row and column of the PE that holds the
rest. Nothing moves but by the operations here, and each of them counts: multiply-accumulates and
vector instructions of the busiest PE, words on the busiest link, hops along the longest path,
stages of software routing. `kernels.py` has the closed forms of the same counts; a test holds them
equal.

Directions: a vector cut *by rows* has its part i on every PE of row i; one cut *by columns* has
part j on every PE of column j. A product turns one into the other, so layers alternate.
"""

import functools
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from wafer_engine.hardware.spec import WaferSpec

Array = npt.NDArray[np.float64]
Axis = Literal["rows", "columns"]


# A stage goes into the core and out again, at about 2 cycles each, and adds: T_R of "Near-Optimal
# Wafer-Scale Reduce" (HPDC 2024), published.
STAGE_CYCLES = 5


class Counts(msgspec.Struct):
    """Counts the work of the busiest PE and the longest path, summed over operations."""

    macs: int = 0  # multiply-accumulates
    vector_starts: int = 0  # vector instructions: one per input element of a local product
    allreduces: int = 0
    stages: int = 0  # add-and-forward steps of allreduces
    steps: int = 0  # compute-shift steps of matrix-matrix products
    hops: int = 0  # links crossed, one after another
    words: int = 0  # elements over the busiest link, one after another

    def ideal_cycles(self, wafer: WaferSpec) -> float:
        """Returns the cycles if nothing ever waited: a lower bound, up to five times too low.

        Vectors at full width, one cycle to start each, one per hop, two 16-bit words per link and
        cycle, `STAGE_CYCLES` per stage of an allreduce; one after another.
        """
        words_per_cycle = wafer.link_bits / 16
        return (
            self.macs / wafer.macs_per_cycle
            + self.vector_starts
            + self.hops
            + self.words / words_per_cycle
            + self.stages * STAGE_CYCLES
        )


class Mesh:
    """Is a square of `side` x `side` PEs with the counts of their work."""

    def __init__(self, side: int, *, levels: int = 2) -> None:
        """Starts idle; allreduces run on a tree of `levels` levels."""
        if side < 1 or levels < 1:
            raise ValueError(f"a mesh needs a side and tree levels of 1 or more: {side}, {levels}")
        self.side = side
        self.levels = levels
        self.counts = Counts()

    def cut_vector(self, vector: Array) -> Array:
        """Cuts a vector into `side` parts, zeros behind its end: shape (side, part)."""
        part = -(-vector.shape[-1] // self.side)
        padded = np.zeros(part * self.side)
        padded[: vector.shape[-1]] = vector
        return padded.reshape(self.side, part)

    def cut_matrix(self, matrix: Array, *, transposed: bool = False) -> Array:
        """Cuts a matrix of inputs by outputs into tiles: shape (side, side, inputs, outputs).

        Transposed, PE (i, j) holds tile (j, i), for an input that is cut by columns.
        """
        rows, columns = (-(-size // self.side) for size in matrix.shape)
        padded = np.zeros((rows * self.side, columns * self.side))
        padded[: matrix.shape[0], : matrix.shape[1]] = matrix
        tiles = padded.reshape(self.side, rows, self.side, columns).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(tiles.transpose(1, 0, 2, 3) if transposed else tiles)

    def allreduce(
        self, tiles: Array, along: Axis, operation: Literal["sum", "max"] = "sum"
    ) -> Array:
        """Combines tiles over all PEs of each row (`columns`) or column (`rows`).

        A tree of `levels` levels: neighbours form groups, each reduced to its middle PE from both
        ends at once; the middles form the next level's groups; the last one sends the result back
        along the whole line.

        Tiles of shape (side, side, ...), summed over the index `along`, give (side, ...): the
        result, indexed by the other direction, on all PEs of its line.
        """
        line = tiles if along == "rows" else tiles.swapaxes(0, 1)
        words = int(np.prod(tiles.shape[2:], dtype=np.int64))
        members = list(range(self.side))
        parts = [line[index] for index in members]
        self.counts.allreduces += 1
        for size in group_sizes(self.side, self.levels):
            starts = range(0, len(members), size)
            groups = [members[at : at + size] for at in starts]
            # Both halves of every group move toward its middle at once; the longest counts.
            stages = max(len(group) // 2 for group in groups)
            middles = [group[len(group) // 2] for group in groups]
            self.counts.stages += stages
            self.counts.words += stages * words
            self.counts.hops += max(
                max(middle - group[0], group[-1] - middle)
                for group, middle in zip(groups, middles, strict=True)
            )
            members, parts = middles, [_fold(parts[at : at + size], operation) for at in starts]
        assert len(parts) == 1, "the last level leaves one"
        self.counts.hops += max(members[0], self.side - 1 - members[0])
        self.counts.words += words
        return np.asarray(parts[0], dtype=np.float64)

    def gemv(self, vector: Array, weights: Array, cut: Axis, products: int = 1) -> Array:
        """Multiplies a vector by a matrix: local products, then one allreduce.

        The vector's parts, shape (side, inputs), are cut by rows or columns as `cut` says, and the
        weights come from `cut_matrix`, transposed where the vector is cut by columns. `products`
        matrices stand side by side in `weights`: each starts its own vector instructions, and one
        allreduce serves them all. Returns parts, shape (side, outputs), cut in the other direction.
        """
        inputs, outputs = weights.shape[2:]
        self.counts.macs += inputs * outputs
        self.counts.vector_starts += inputs * products
        pattern = "ik,ijkn->ijn" if cut == "rows" else "jk,ijkn->ijn"
        return self.allreduce(np.einsum(pattern, vector, weights), along=cut)

    def gemm(self, left: Array, right: Array) -> Array:
        """Multiplies two matrices that are cut alike: cyclic shifts on an interleaved ring.

        Each step multiplies the tiles at hand and passes the left ones along their row, the right
        ones along their column. The ring visits every second PE and returns over the others, so
        every neighbour is at most two links away: no step takes longer on a larger mesh.

        Tiles of shape (side, side, ..., rows, inner) by (side, side, ..., inner, columns) give
        (side, side, ..., rows, columns): as many products at once, shifted together, as the axes
        between say (the heads of an attention).
        """
        side = self.side
        *batch, rows, _ = left.shape[2:]
        columns = right.shape[-1]
        moved = left[0, 0].size + right[0, 0].size
        starts = right[0, 0].size
        ring = interleaved_ring(side)
        index = np.arange(side)
        # Positions on the ring, not on the wafer, index the tiles from here on.
        a, b = left[np.ix_(ring, ring)], right[np.ix_(ring, ring)]
        product = np.zeros((side, side, *batch, rows, columns))
        # Alignment: row i of the left turns by i, column j of the right by j, the shorter way.
        a = a[index[:, None], (index[None, :] + index[:, None]) % side]
        b = b[(index[:, None] + index[None, :]) % side, index[None, :]]
        self._count_shifts(side // 2, moved, ring)
        for step in range(side):
            product += a @ b
            self.counts.steps += 1
            self.counts.macs += rows * starts
            self.counts.vector_starts += starts
            if step < side - 1:
                a, b = np.roll(a, -1, axis=1), np.roll(b, -1, axis=0)
                self._count_shifts(1, moved, ring)
        back = np.argsort(ring)
        return product[np.ix_(back, back)]

    def _count_shifts(self, times: int, words: int, ring: list[int]) -> None:
        self.counts.hops += times * longest_ring_link(ring)
        self.counts.words += times * words


class ShiftedCache:
    """Spreads tokens evenly over the rows of a mesh as they come, in order of age.

    A new token enters at the last row. Where that row would hold more than its share, every row
    passes its oldest token up by one link, all rows at once: no row ever holds two more tokens
    than another, and order is kept.
    """

    def __init__(self, mesh: Mesh, words_per_token: int) -> None:
        """Starts empty; a token has so many elements on one PE. The mesh counts its moves."""
        self._mesh = mesh
        self._words = words_per_token
        self.rows: list[list[int]] = [[] for _ in range(mesh.side)]
        self.num_tokens = 0

    def append(self) -> None:
        """Takes the next token, numbered in order of arrival."""
        self.rows[-1].append(self.num_tokens)
        self.num_tokens += 1
        moved = False
        for row in range(self._mesh.side - 1, 0, -1):
            if len(self.rows[row]) > self._share(row):
                self.rows[row - 1].append(self.rows[row].pop(0))
                moved = True
        if moved:
            self._mesh.counts.hops += 1
            self._mesh.counts.words += self._words

    def fill(self, num_tokens: int) -> None:
        """Fills it with a prompt's tokens, laid out as if they had come one by one; not counted."""
        assert not self.num_tokens, "a prompt comes first"
        self.num_tokens = num_tokens
        numbers = iter(range(num_tokens))
        shares = map(self._share, range(self._mesh.side))
        self.rows = [[next(numbers) for _ in range(share)] for share in shares]

    def _share(self, row: int) -> int:
        """Returns the tokens a row may hold: even shares, the rest in earlier rows."""
        share, more = divmod(self.num_tokens, self._mesh.side)
        return share + (1 if row < more else 0)


def group_sizes(side: int, levels: int) -> list[int]:
    """Returns the group size at each level of the allreduce tree, which leaves one PE."""
    sizes = []
    left = side
    for level in range(levels, 0, -1):
        size = max(1, int(np.ceil(round(left ** (1.0 / level), 9))))
        sizes.append(size)
        left = -(-left // size)
    return sizes


def interleaved_ring(side: int) -> list[int]:
    """Returns positions along a line in ring order: 0, 2, 4, ... and back over ..., 5, 3, 1."""
    return [*range(0, side, 2), *reversed(range(1, side, 2))]


def longest_ring_link(ring: list[int]) -> int:
    """Returns the most links between neighbours on the ring: 2 from three PEs on."""
    following = [*ring[1:], ring[0]]
    return max(abs(here - there) for here, there in zip(ring, following, strict=True))


def _fold(parts: list[Array], operation: Literal["sum", "max"]) -> Array:
    """Combines a group as the hardware does: from both ends toward the middle."""
    combine = np.add if operation == "sum" else np.maximum
    middle = len(parts) // 2
    result = parts[middle]
    for half in (parts[:middle], parts[:middle:-1]):
        if half:
            result = combine(result, functools.reduce(combine, half))
    return np.asarray(result, dtype=np.float64)
