"""Vectors of texts, and a search by them, without a GPU. Words are hashed into 512 places, so any text has a vector.

`fit` counts in how many texts each place occurs, and keeps the weights in a volume. `embed` and `search` load them once
for each container. Without weights all places count alike.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from longshore import Context, Image, Volume, endpoint, function

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Floats = NDArray[numpy.float64]

PLACES = 512
WEIGHTS = 'models/weights.npz'

image = Image(python_packages=['numpy==2.2.6'])
volume = Volume(name='embeddings', mount_path='models')


def places_of(text: str) -> Iterator[tuple[int, float]]:
    """The places of a text's words and pairs of words, each with a sign, which lets collisions cancel out."""
    words = re.findall(r'\w+', text.lower())
    for part in words + [' '.join(pair) for pair in zip(words, words[1:])]:
        number = int.from_bytes(hashlib.blake2b(part.encode(), digest_size=8).digest(), 'big')
        yield number % PLACES, 1.0 if number & (1 << 40) else -1.0


def load() -> Floats:
    """The weight of each place."""
    import numpy

    if not os.path.exists(WEIGHTS):
        return numpy.ones(PLACES)
    with numpy.load(WEIGHTS) as kept:
        weights: Floats = kept['weights']
    return weights


def vectors_of(texts: list[str], weights: Floats) -> Floats:
    import numpy

    vectors: Floats = numpy.zeros((len(texts), PLACES))
    for row, text in zip(vectors, texts):
        for place, sign in places_of(text):
            row[place] += sign
    vectors *= weights
    lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
    units: Floats = vectors / numpy.where(lengths == 0, 1, lengths)
    return units


@endpoint(name='embed', cpu=0.5, memory='512mi', image=image, volumes=[volume], on_start=load)
def embed(context: Context, texts: list[str]) -> dict[str, Any]:
    vectors = vectors_of(texts, context.on_start_value)
    return {'places': PLACES, 'vectors': vectors.round(4).tolist()}


@endpoint(name='search', cpu=0.5, memory='512mi', image=image, volumes=[volume], on_start=load)
def search(context: Context, query: str, texts: list[str], most: int = 3) -> list[dict[str, Any]]:
    asked, *vectors = vectors_of([query, *texts], context.on_start_value)
    found = sorted(((float(asked @ vector), text) for vector, text in zip(vectors, texts)), reverse=True)
    return [{'text': text, 'likeness': round(likeness, 3)} for likeness, text in found[:most]]


@function(name='fit', cpu=0.5, memory='512mi', image=image, volumes=[volume])
def fit(texts: list[str]) -> dict[str, int]:
    import numpy

    counts = numpy.zeros(PLACES)
    for text in texts:
        counts[list({place for place, _ in places_of(text)})] += 1
    weights = numpy.log((1 + len(texts)) / (1 + counts)) + 1
    # The new file takes the old one's place in one step: a container that starts meanwhile reads a whole one.
    numpy.savez(WEIGHTS + '.new.npz', weights=weights)
    os.replace(WEIGHTS + '.new.npz', WEIGHTS)
    return {'texts': len(texts), 'places': int((counts > 0).sum())}
