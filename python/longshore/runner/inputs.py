"""Turns the caller's bytes and query parameters into the handler's arguments."""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

# Matches JSON numbers only: `007` and `1_000` are texts, and nobody means `nan` and `inf` as numbers.
_NUMBER = re.compile(r'-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?')


class InputError(TypeError):
    """The caller's input cannot become arguments."""


def arguments(body: bytes, query: Optional[Mapping[str, Any]]) -> Tuple[List[Any], Dict[str, Any]]:
    """
    Positional and keyword inputs. `args` (an array) has the positional ones. `kwargs` (an object) has the keywords if
    present; else every other key is one. Query parameters are added to the keywords.
    """
    given: Any = json.loads(body) if body.strip() else {}
    if not isinstance(given, dict):
        raise InputError('the input must be a JSON object')
    positional: List[Any] = []
    # Some callers send `{"args": null, "kwargs": {…}}` for "no positional inputs", or the reverse.
    if isinstance(given.get('args'), list):
        positional = given.pop('args')
        if given.get('kwargs', 0) is None:
            del given['kwargs']
    keywords = given['kwargs'] if isinstance(given.get('kwargs'), dict) else given
    for name, value in (query or {}).items():
        values = value if isinstance(value, list) else [value]
        read = [number_or_text(item) for item in values]
        keywords[name] = read[0] if len(read) == 1 else read
    return positional, keywords


def number_or_text(text: Any) -> Any:
    """Reads `'12'` as 12 and `'1.5'` as 1.5; any text that is not exactly a number stays a text."""
    if not isinstance(text, str):
        return text
    match = _NUMBER.fullmatch(text)
    if match is None or len(text) > 300:
        return text
    if match.group(2) is None and match.group(3) is None:
        return int(text)
    number = float(text)
    return text if number in (float('inf'), float('-inf')) else number
