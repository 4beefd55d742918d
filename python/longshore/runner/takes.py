"""Tells a caller whose inputs were refused what the handler takes. Loaded at the first such call."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Sequence

_KEYWORDS = 0x08
#: Names that are told; a handler may have more.
_MOST = 20


def takes(function: Any, schema: Any) -> str:
    """A sentence with the names of the inputs. schema: of the inputs, or None. '': nothing is known of the function."""
    if schema is not None:
        return _sentence(list(schema._fields), [], False)
    for _ in range(16):
        function = getattr(function, '__wrapped__', function)
    code = getattr(function, '__code__', None)
    if code is None:
        return ''
    count, keyword_only = code.co_argcount, code.co_kwonlyargcount
    names = [name for name in code.co_varnames[: count + keyword_only] if name not in ('context', 'self')]
    positional = code.co_varnames[:count]
    filled = set(positional[count - len(function.__defaults__ or ()) :]) | set(function.__kwdefaults__ or ())
    needed = [name for name in names if name not in filled]
    return _sentence(needed, [name for name in names if name in filled], bool(code.co_flags & _KEYWORDS))


def _sentence(needed: Sequence[str], optional: Sequence[str], takes_any: bool) -> str:
    told: List[str] = [', '.join(needed[:_MOST])] if needed else []
    if optional:
        told.append('optionally %s' % ', '.join(optional[:_MOST]))
    if takes_any:
        told.append('any other name')
    return 'the handler takes %s' % (' and '.join(told) or 'no inputs')
