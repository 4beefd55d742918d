"""Turns the caller's bytes and query parameters into the handler's arguments."""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

# Matches JSON numbers only: `007` and `1_000` are texts, and nobody means `nan` and `inf` as numbers.
_NUMBER = re.compile(r'-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?')


#: The parameter of an address that says how inputs are written. The scheduler lets only callers give it that may run
#: code in this container.
VALUES = 'longshore_values'
#: The parameter that asks for the very value of the result: a tuple, say, where JSON would make a list of it.
RESULTS = 'longshore_results'
#: The form of a pickled result: an object of exactly these keys, with this encoding.
PICKLED_KEYS = {'base64', 'encoding'}
ENCODING = 'cloudpickle'


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


def is_pickled(query: Optional[Mapping[str, Any]]) -> bool:
    return query is not None and query.get(VALUES) in ('pickle', ['pickle'])


def is_exact(query: Optional[Mapping[str, Any]]) -> bool:
    """Whether a call with pickled inputs wants a result that JSON cannot change."""
    return is_pickled(query) and query is not None and query.get(RESULTS) in ('exact', ['exact'])


def pickled_arguments(body: bytes) -> Tuple[List[Any], Dict[str, Any]]:
    """As `arguments`, of a body that the caller's module has pickled: `{"pickle": base64}`."""
    from ..values import ValueProblem, unpickled  # not paid where inputs are JSON

    given = json.loads(body)
    try:
        inputs = unpickled(given['pickle'])
        return list(inputs['args']), dict(inputs['kwargs'])
    except (ValueProblem, KeyError, TypeError) as error:
        raise InputError('the pickled input cannot be read: %s' % error) from error


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
