"""A generator: the caller reads each word as it is made, as a language model sends them. Here the model is a table of
which word follows which."""

from __future__ import annotations

import random
import time
from typing import Any, Iterator

from longshore import Context, endpoint

TEXT = (
    'the ship comes in at night and the crane lifts the box from the ship to the truck and the truck leaves the harbour '
    'before the sun comes up and the crane waits for the next ship and the next box'
)


def load() -> dict[str, list[str]]:
    words = TEXT.split()
    follows: dict[str, list[str]] = {}
    for word, after in zip(words, [*words[1:], words[0]]):
        follows.setdefault(word, []).append(after)
    return follows


@endpoint(name='stream', cpu=0.25, memory=128, on_start=load)
def handler(
    context: Context, prompt: str = 'the', words: int = 12, seed: int = 0, pause: float = 0.05
) -> Iterator[dict[str, Any]]:
    follows: dict[str, list[str]] = context.on_start_value
    chance = random.Random(seed)
    word = prompt.split()[-1]
    for number in range(1, words + 1):
        word = chance.choice(follows.get(word) or ['the'])
        yield {'number': number, 'word': word}
        time.sleep(pause)
