"""Values between the caller's module and the runner: JSON where a value is JSON, else pickled.

A pickled value is code of its writer, so it is read only where the writer may run code anyway. `cloudpickle` writes it
where that library is installed: it also takes functions and classes of the app file. Reading needs the library only
for those.
"""

from __future__ import annotations

import base64
import json
import pickle

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Optional, Tuple

JSON = 'json'
PICKLE = 'pickle'
#: Every Python from 3.8 on reads it.
_PROTOCOL = 5
#: The library that pickles functions and classes of app files. Published clients pickle everything with it.
_LIBRARY = 'cloudpickle'


class ValueProblem(TypeError):
    """A value that cannot be written or read; the text says why."""


def json_text(value: Any) -> Optional[str]:
    """The value as JSON text; None where JSON would not give the same value back."""
    if not _is_json(value, 0):
        return None
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(',', ':'))
        text.encode('utf-8')
    except UnicodeEncodeError:  # half of a surrogate pair: only the escaped form can hold it
        return json.dumps(value, allow_nan=False, separators=(',', ':'))
    except (TypeError, ValueError, RecursionError):
        return None
    return text


def _is_json(value: Any, depth: int) -> bool:
    """Whether the value is of the very types that JSON gives back: a tuple or an object with numbers as keys is not."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return True
    if kind is float:
        return value == value and value not in (float('inf'), float('-inf'))
    if depth > 200:
        return False
    if kind is list:
        return all(_is_json(item, depth + 1) for item in value)
    if kind is dict:
        return all(type(key) is str and _is_json(item, depth + 1) for key, item in value.items())
    return False


def pickled(value: Any) -> str:
    """The value pickled, as base64 text. Raises ValueProblem."""
    try:
        import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]

        dumps = cloudpickle.dumps
    except ImportError:
        dumps = pickle.dumps
    try:
        return base64.b64encode(dumps(value, protocol=_PROTOCOL)).decode('ascii')
    except Exception as problem:
        hint = '' if dumps is not pickle.dumps else '; the library cloudpickle may do it, where it is installed'
        raise ValueProblem('%s cannot be sent: %s%s' % (type(value).__name__, problem, hint)) from problem


def unpickled(text: str) -> Any:
    """Reads what `pickled` wrote. Raises ValueProblem."""
    try:
        return pickle.loads(base64.b64decode(text, validate=True))
    except ModuleNotFoundError as problem:
        library = (problem.name or '').partition('.')[0]
        cure = '; add it to the image: Image().add_python_packages(["cloudpickle"])' if library == _LIBRARY else ''
        raise ValueProblem(
            'the value needs the library %s, which is not installed here%s' % (problem.name, cure)
        ) from problem
    except Exception as problem:
        # A value of a newer version names what an older one lacks.
        hint = '; the version of cloudpickle here is older than the one that wrote it' if _LIBRARY in str(problem) else ''
        text = 'the value cannot be read: %s: %s%s' % (type(problem).__name__, problem, hint)
        raise ValueProblem(text) from problem


def encoded(value: Any) -> Tuple[str, str]:
    """The encoding and the text of a value. Raises ValueProblem."""
    text = json_text(value)
    return (PICKLE, pickled(value)) if text is None else (JSON, text)


def decoded(encoding: str, text: str) -> Any:
    """Reads what `encoded` wrote. Raises ValueProblem."""
    if encoding == PICKLE:
        return unpickled(text)
    try:
        return json.loads(text)
    except ValueError as problem:
        raise ValueProblem('the value cannot be read: %s' % problem) from problem
