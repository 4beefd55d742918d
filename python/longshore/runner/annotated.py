"""
Inputs of a handler held to its annotations: a value of another JSON type is refused with the name of its field. Values
are converted only where JSON has no such type: dates, bytes, sets, enumerations, dataclasses, models of pydantic. JSON has
one type of numbers, so a number of it becomes the annotation's, where that keeps its value.

Imported only where a handler has annotations. What cannot be resolved, or is not known here, is left alone.
"""

from __future__ import annotations

import types

from .inputs import InputError
from .type_checks import ANYTHING, Scope, Types, annotations_of, or_null

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

    from .value_checks import Check

_VARARGS = 0x04
_KEYWORDS = 0x08


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
    """As the check, of a parameter of the address. It is a text that may stand for a number, for true or false, or for an
    array of one."""
    tries = [value, text]
    if text in ('true', 'false'):
        tries.append(text == 'true')
    if not isinstance(text, list):
        tries += [[value], [text]]
    for one in tries:
        try:
            made = check(place, one)
        except InputError:
            continue
        if isinstance(one, float) and not isinstance(made, (int, float)):
            # A decimal number: the text has all its digits.
            tries, value = [], text
            break
        return made
    return check(place, value)
