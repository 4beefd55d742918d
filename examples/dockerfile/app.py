"""An image of your own Dockerfile: the database is made while the image is built, and every container has it."""

from __future__ import annotations

import os
import sqlite3
from typing import Any

from longshore import Image, endpoint


@endpoint(name='elements', cpu=0.25, memory=128, image=Image.from_dockerfile('Dockerfile'))
def handler(symbol: str) -> dict[str, Any]:
    with sqlite3.connect(os.environ['ELEMENTS']) as database:
        found = database.execute('select number, name, year from elements where symbol = ?', [symbol]).fetchone()
    if found is None:
        raise KeyError(f'no element has the symbol {symbol}')
    return dict(zip(('number', 'name', 'year'), found))
