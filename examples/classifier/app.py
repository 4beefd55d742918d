"""A text classifier: `train.py` makes the model in a volume, `on_start` loads it once for each container."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from longshore import Context, Image, Volume, endpoint

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Floats = NDArray[numpy.float64]

MODEL = 'models/topics.npz'

image = Image(python_packages=['numpy==2.2.6'])
volume = Volume(name='classifier', mount_path='models')


class Model:
    """Naive Bayes: how much each word speaks for each topic."""

    def __init__(self, topics: list[str], words: list[str], weights: Floats) -> None:
        self.topics, self.words, self.weights = topics, words, weights
        self.columns = {word: column for column, word in enumerate(words)}

    def chances(self, text: str) -> Floats:
        import numpy

        columns = [self.columns[word] for word in words_of(text) if word in self.columns]
        scores = self.weights[:, columns].sum(axis=1)
        chances: Floats = numpy.exp(scores - scores.max())
        shares: Floats = chances / chances.sum()
        return shares


def words_of(text: str) -> list[str]:
    return re.findall(r'[a-z]+', text.lower())


def load() -> Model:
    import numpy

    with numpy.load(MODEL) as kept:
        return Model(kept['topics'].tolist(), kept['words'].tolist(), kept['weights'])


@endpoint(name='classifier', cpu=1, memory='512mi', image=image, volumes=[volume], on_start=load)
def classify(context: Context, text: str) -> dict[str, Any]:
    model: Model = context.on_start_value
    chances = model.chances(text)
    best = chances.argmax()
    return {'topic': model.topics[best], 'chance': round(float(chances[best]), 2)}
