"""A text classifier: `train.py` makes the model in a volume, `on_start` loads it once for each container."""

import re

from longshore import Image, Volume, endpoint

MODEL = 'models/topics.npz'

image = Image(python_packages=['numpy==2.2.6'])
volume = Volume(name='classifier', mount_path='models')


class Model:
    """Naive Bayes: how much each word speaks for each topic."""

    def __init__(self, topics, words, weights):
        self.topics, self.words, self.weights = topics, words, weights
        self.columns = {word: column for column, word in enumerate(words)}

    def chances(self, text):
        import numpy

        columns = [self.columns[word] for word in words_of(text) if word in self.columns]
        scores = self.weights[:, columns].sum(axis=1)
        chances = numpy.exp(scores - scores.max())
        return chances / chances.sum()


def words_of(text):
    return re.findall(r'[a-z]+', text.lower())


def load():
    import numpy

    with numpy.load(MODEL) as kept:
        return Model(kept['topics'].tolist(), kept['words'].tolist(), kept['weights'])


@endpoint(name='classifier', cpu=1, memory='512mi', image=image, volumes=[volume], on_start=load)
def classify(context, text: str):
    model = context.on_start_value
    chances = model.chances(text)
    best = chances.argmax()
    return {'topic': model.topics[best], 'chance': round(float(chances[best]), 2)}
