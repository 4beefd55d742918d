"""Trains the text generator in a container, from the documents of this repository, and keeps it in the volume.

Run it as a program, with files of yours if you like; nothing has to be deployed:

    PYTHONPATH=python python3 examples/text_generator/train.py [FILE ...]
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from app import MODEL, volume
from model import Model

from longshore import function


@function(name='text-generator-train', app='text-generator', cpu=1, memory='512mi', volumes=[volume])
def train(paragraphs: list[str]) -> dict[str, float]:
    # Each tenth paragraph is held back, and tells how good the model is.
    held_back = paragraphs[::10]
    model = Model.trained(text for at, text in enumerate(paragraphs) if at % 10 != 0)
    # The new file takes the old one's place in one step: a container that starts meanwhile reads a whole one.
    model.save(MODEL + '.new')
    os.replace(MODEL + '.new', MODEL)
    return {'paragraphs': len(paragraphs), 'perplexity': round(model.perplexity(held_back))}


def paragraphs_of(text: str) -> list[str]:
    """Prose of a Markdown page, without its code, tables and headings."""
    text = re.sub(r'^```.*?^```', '', text, flags=re.DOTALL | re.MULTILINE)
    blocks = (' '.join(block.split()) for block in re.split(r'\n\s*\n', text))
    return [re.sub(r'\[([^]]*)\]\([^)]*\)', r'\1', block) for block in blocks if re.match(r'\w', block)]


if __name__ == '__main__':
    documents = Path(__file__).resolve().parents[2] / 'docs'
    files = [Path(name) for name in sys.argv[1:]] or sorted(documents.glob('*.md'))
    print(train.remote([part for file in files for part in paragraphs_of(file.read_text(encoding='utf-8'))]))
