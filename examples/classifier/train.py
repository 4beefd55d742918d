"""Trains the classifier in a container, with the packages that serve it later, and keeps the model in the volume.

Run it as a program; nothing has to be deployed:

    PYTHONPATH=python python3 examples/classifier/train.py
"""

from __future__ import annotations

import csv

from app import MODEL, Model, image, volume, words_of

from longshore import function


def fit(messages: list[list[str]]) -> Model:
    import numpy

    topics = sorted({topic for topic, _ in messages})
    words = sorted({word for _, text in messages for word in words_of(text)})
    columns = {word: column for column, word in enumerate(words)}
    counts = numpy.ones((len(topics), len(words)))
    for topic, text in messages:
        for word in words_of(text):
            counts[topics.index(topic), columns[word]] += 1
    return Model(topics, words, numpy.log(counts / counts.sum(axis=1, keepdims=True)))


def accuracy_of(messages: list[list[str]]) -> float:
    """Of models that each did not see one message: how many name its topic."""
    right = 0
    for number, (topic, text) in enumerate(messages):
        model = fit(messages[:number] + messages[number + 1 :])
        right += model.topics[model.chances(text).argmax()] == topic
    return round(right / len(messages), 2)


@function(name='classifier-train', app='classifier', cpu=1, memory='512mi', image=image, volumes=[volume])
def train() -> dict[str, float]:
    import numpy

    with open('messages.csv', encoding='utf-8', newline='') as file:
        messages = list(csv.reader(file))
    model = fit(messages)
    numpy.savez(MODEL, topics=model.topics, words=model.words, weights=model.weights)
    print('trained with', len(messages), 'messages')
    return {'messages': len(messages), 'accuracy': accuracy_of(messages)}


if __name__ == '__main__':
    print(train.remote())
