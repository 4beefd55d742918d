"""
Inputs of a handler held to its annotations: a value of another JSON type is refused with the name of its field. Values
are converted only where JSON has no such type: dates, bytes, sets, enumerations, dataclasses, models of pydantic. JSON has
one type of numbers, so a number of it becomes the annotation's, where that keeps its value.

Imported only where a handler has annotations. What cannot be resolved, or is not known here, is left alone.
"""

from __future__ import annotations

import types

from .inputs import InputError, number_or_text
from .type_checks import ANYTHING, Scope, Types, annotations_of, or_null
from .value_checks import Refusal, inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

    from .value_checks import Check

_VARARGS = 0x04
_KEYWORDS = 0x08
#: What says true or false in an address, in any case.
_SAID = {'true': True, '1': True, 'false': False, '0': False}
#: Items of one parameter that may be of several types.
_MOST_MIXED = 64


class Checks:
    """The checks of one function."""

    def __init__(self, function: Any) -> None:
        code = function.__code__
        names = code.co_varnames
        count, keyword_only = code.co_argcount, code.co_kwonlyargcount
        self._positional: Tuple[str, ...] = names[:count]
        end = count + keyword_only
        rest = names[end] if code.co_flags & _VARARGS else ''
        others = names[end + (1 if rest else 0)] if code.co_flags & _KEYWORDS else ''
        known = annotations_of(function)
        defaults = dict(zip(self._positional[::-1], (function.__defaults__ or ())[::-1]), **(function.__kwdefaults__ or {}))
        made = Types()
        scope = Scope(function.__globals__)
        self._checks: Dict[str, Check] = {}
        for name in names[:end]:
            check = made.check(known.get(name, ANYTHING), scope) if name != 'context' else None
            if check is not None:
                # `n: int = None` takes null, too.
                self._checks[name] = or_null(check) if name in defaults and defaults[name] is None else check
        self._rest = made.check(known.get(rest, ANYTHING), scope) if rest else None
        self._others = made.check(known.get(others, ANYTHING), scope) if others else None
        #: A keyword with the name of a parameter that is positional only is one of the others.
        self._named = names[code.co_posonlyargcount : end]
        self.is_needed = bool(self._checks or self._rest or self._others)

    def checked(self, positional: List[Any], keywords: Dict[str, Any], query: Optional[Mapping[str, Any]]) -> Tuple[List[Any], Dict[str, Any]]:
        """The inputs for the handler. query: parameters of the address, which are texts. Raises InputError."""
        given = list(positional)
        named = dict(keywords)
        place = ''
        try:
            for at, value in enumerate(given):
                is_named = at < len(self._positional)
                place = self._positional[at] if is_named else 'args[%d]' % at
                check = self._checks.get(place) if is_named else self._rest
                if check is not None:
                    given[at] = check(place, value)
            for place, value in keywords.items():
                check = self._checks.get(place) if place in self._named else self._others
                if check is not None:
                    named[place] = _of_query(check, place, value, query[place]) if query and place in query else check(place, value)
        except RecursionError:
            raise InputError('%s: is nested too deeply' % place) from None
        return given, named


def checks_of(function: Any) -> Optional[Checks]:
    """The checks of a handler's function; None: it has no annotations that are known here."""
    inner = function
    for _ in range(16):
        wrapped = getattr(inner, '__wrapped__', None)
        if wrapped is None:
            break
        inner = wrapped
    if not isinstance(inner, types.FunctionType):
        return None
    try:
        checks = Checks(inner)
    except Exception:
        return None  # annotations that cannot be read are no reason for a handler not to start
    return checks if checks.is_needed else None


def _of_query(check: Check, place: str, value: Any, text: Any) -> Any:
    """As the check, of a parameter of the address: texts, which may stand for numbers, for true or false, or for an array.
    text: one text, or the texts of a name that came more often than once, or in a list of one."""
    texts = text if isinstance(text, list) else [text]
    readings = [_readings(one) for one in texts]
    if len(texts) == 1:
        tries: List[Any] = readings[0] + [[one] for one in readings[0]]
    else:
        tries = [value, texts, [one[-1] for one in readings]]
    for one in tries:
        try:
            made = check(place, one)
        except InputError:
            continue
        if isinstance(one, float) and not isinstance(made, (int, float)):
            return check(place, texts[0])  # a decimal number: the text has all its digits
        return made
    return check(place, _mixed(check, place, readings) if 1 < len(texts) <= _MOST_MIXED else value)


def _readings(text: Any) -> List[Any]:
    """What a text of the address may stand for, the likeliest first."""
    said = _SAID.get(text.lower()) if isinstance(text, str) else None
    return [number_or_text(text), text] + ([] if said is None else [said])


def _mixed(check: Check, place: str, readings: List[List[Any]]) -> List[Any]:
    """Items of several types, such as a tuple's: each item that is refused is read in its next way."""
    ways = [0] * len(readings)
    while True:
        items = [one[way] for one, way in zip(readings, ways)]
        try:
            check(place, items)
        except Refusal as refused:
            at = next((at for at in range(len(items)) if refused.place == inside(place, at)), -1)
            if at >= 0 and ways[at] + 1 < len(readings[at]):
                ways[at] += 1
                continue
        except InputError:
            pass
        return items
