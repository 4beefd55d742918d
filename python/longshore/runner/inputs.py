"""From the caller's bytes and query parameters to the handler's arguments."""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

# A JSON number and nothing else: `007` and `1_000` are names of things, `nan` and `inf` are no numbers anybody meant.
_NUMBER = re.compile(r'-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?')


class InputError(TypeError):
    """The caller's input cannot become arguments."""


def arguments(body: bytes, query: Optional[Mapping[str, Any]]) -> Tuple[List[Any], Dict[str, Any]]:
    """
    Positional and keyword inputs. `args` (an array) gives the positional ones; `kwargs` (an object) alone gives the keywords, else
    every other key is one. Query parameters come on top of the keywords.
    """
    given: Any = json.loads(body) if body.strip() else {}
    if not isinstance(given, dict):
        raise InputError('the input must be a JSON object')
    positional: List[Any] = []
    # `{"args": null, "kwargs": {…}}` is how some callers say "no positional inputs", and the other way round.
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
    """`'12'` is 12, `'1.5'` is 1.5; whatever is not exactly a number stays as it came."""
    if not isinstance(text, str):
        return text
    match = _NUMBER.fullmatch(text)
    if match is None or len(text) > 300:
        return text
    if match.group(2) is None and match.group(3) is None:
        return int(text)
    number = float(text)
    return text if number in (float('inf'), float('-inf')) else number
