"""Makes up weights from a seed."""

import numpy as np

from wafer_engine.mesh.mesh import Array
from wafer_engine.mesh.weights import LayerWeights, TransformerShape, TransformerWeights


def random_weights(shape: TransformerShape, rng: np.random.Generator) -> TransformerWeights:
    """Weights of about unit gain."""

    def matrix(inputs: int, outputs: int) -> Array:
        return rng.normal(scale=inputs**-0.5, size=(inputs, outputs))

    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    layers = tuple(
        LayerWeights(
            attention_norm=rng.uniform(0.5, 1.5, shape.hidden),
            query=matrix(shape.hidden, queries),
            key=matrix(shape.hidden, keys),
            value=matrix(shape.hidden, keys),
            query_bias=rng.normal(scale=0.1, size=queries),
            key_bias=rng.normal(scale=0.1, size=keys),
            value_bias=rng.normal(scale=0.1, size=keys),
            output=matrix(queries, shape.hidden),
            ffn_norm=rng.uniform(0.5, 1.5, shape.hidden),
            gate=matrix(shape.hidden, shape.ffn),
            up=matrix(shape.hidden, shape.ffn),
            down=matrix(shape.ffn, shape.hidden),
        )
        for _ in range(shape.num_layers)
    )
    return TransformerWeights(
        shape,
        rng.normal(size=(shape.vocab, shape.hidden)),
        layers,
        rng.uniform(0.5, 1.5, shape.hidden),
        matrix(shape.hidden, shape.vocab),
    )
