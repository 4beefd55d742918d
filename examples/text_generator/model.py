"""A language model of word sequences: how often each token follows the three, two, one or none before it.

A token is a word with the space before it, a digit, or any other character. The tokens of a text, put together, are the
text again, so every text has an exact number of tokens.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator

TOKEN = re.compile(r' ?[^\W\d_]+| ?\d|.', re.DOTALL)
#: The last token of each paragraph.
END = '\n'
#: Tokens before the next one that count.
ORDER = 3
#: Weight of the next shorter context, in observations.
BACK_OFF = 2.0

Counts = dict[str, int]


def tokens_of(text: str) -> list[str]:
    return TOKEN.findall(text)


class Model:
    """`table`: for each context, which is its tokens put together, the tokens that followed it and how often."""

    def __init__(self, table: dict[str, Counts]) -> None:
        self.table = table

    @classmethod
    def trained(cls, paragraphs: Iterable[str]) -> Model:
        table: dict[str, Counter[str]] = {}
        for paragraph in paragraphs:
            tokens = [END] * ORDER + tokens_of(paragraph) + [END]
            for at in range(ORDER, len(tokens)):
                for length in range(ORDER + 1):
                    context = ''.join(tokens[at - length : at])
                    table.setdefault(context, Counter())[tokens[at]] += 1
        # Contexts that were seen once say little; without them the file is a fraction as large.
        kept = {context: dict(counts) for context, counts in table.items() if sum(counts.values()) > 1}
        return cls(kept)

    @classmethod
    def load(cls, path: str) -> Model:
        with open(path, encoding='utf-8') as file:
            return cls(json.load(file))

    def save(self, path: str) -> None:
        with open(path, 'w', encoding='utf-8') as file:
            json.dump(self.table, file, ensure_ascii=False)

    def contexts(self, tokens: list[str]) -> list[Counts]:
        """What followed the last tokens, the longest known context first."""
        ends = [''.join(tokens[len(tokens) - length :]) for length in range(min(ORDER, len(tokens)), -1, -1)]
        return [self.table[end] for end in ends if end in self.table]

    def chance(self, tokens: list[str], following: str) -> float:
        """How likely a token is after others; above zero for a token that the training never saw."""
        chance = 1 / (len(self.table['']) + 1)
        for counts in reversed(self.contexts(tokens)):
            chance = (counts.get(following, 0) + BACK_OFF * chance) / (sum(counts.values()) + BACK_OFF)
        return chance

    def perplexity(self, paragraphs: Iterable[str]) -> float:
        """Among how many equally likely tokens the model hesitates, on texts that it has not seen."""
        nats, count = 0.0, 0
        for paragraph in paragraphs:
            tokens = [END] * ORDER + tokens_of(paragraph) + [END]
            for at in range(ORDER, len(tokens)):
                nats -= math.log(self.chance(tokens[at - ORDER : at], tokens[at]))
                count += 1
        return math.exp(nats / max(count, 1))

    def follow(self, prompt: list[str], temperature: float, top_p: float, seed: int | None) -> Iterator[str]:
        """Tokens after a prompt, one by one, up to the end of a paragraph. The same seed gives the same tokens."""
        chosen = random.Random(seed)
        tokens = list(prompt[-ORDER:]) or [END] * ORDER
        while True:
            contexts = self.contexts(tokens)
            counts = contexts[0]
            while temperature > 0 and len(contexts) > 1:
                seen = sum(counts.values())
                if chosen.random() < seen / (seen + BACK_OFF):
                    break
                counts = contexts.pop(1)
            token = pick(counts, temperature, top_p, chosen)
            if token == END:
                return
            yield token
            tokens = [*tokens[1 - ORDER :], token]


def pick(counts: Counts, temperature: float, top_p: float, chosen: random.Random) -> str:
    likely = sorted(counts, key=lambda token: (-counts[token], token))
    if temperature == 0:
        return likely[0]
    # The largest weight is 1, so that a low temperature overflows nothing.
    weights = [(counts[token] / counts[likely[0]]) ** (1 / temperature) for token in likely]
    most, kept, total = top_p * sum(weights), 0, 0.0
    while kept == 0 or (kept < len(likely) and total < most):
        total += weights[kept]
        kept += 1
    return chosen.choices(likely[:kept], weights[:kept])[0]
