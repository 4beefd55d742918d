"""
Inputs of a handler held to its annotations: a value of another JSON type is refused with the name of its field. Values
are converted only where JSON has no such type: dates, bytes, enumerations, dataclasses, models of pydantic. JSON has one
type of numbers, so a number of it becomes the annotation's, where that keeps its value.

Imported only where a handler has annotations. What cannot be resolved, or is not known here, is left alone.
"""

from __future__ import annotations

import sys
import types
import typing

from .inputs import InputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

    #: Gives the value for the handler. Raises InputError, whose text begins with the place.
    Check = Callable[[str, Any], Any]

_VARARGS = 0x04
_KEYWORDS = 0x08
#: Bound on types within types: a dataclass may name itself.
_MOST_DEPTH = 16
_ARRAYS = ('list', 'tuple', 'set', 'frozenset', 'deque', 'Sequence', 'MutableSequence', 'Iterable', 'Collection', 'Set', 'MutableSet')
_OBJECTS = ('dict', 'Mapping', 'MutableMapping', 'defaultdict', 'OrderedDict')
_UNION = (typing.Union, getattr(types, 'UnionType', typing.Union))


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
        known = _annotations(function)
        defaults = dict(zip(self._positional[::-1], (function.__defaults__ or ())[::-1]), **(function.__kwdefaults__ or {}))
        self._checks: Dict[str, Check] = {}
        for name in names[:end]:
            check = _check(known.get(name, _ANY), function.__globals__, 0) if name != 'context' else None
            if check is not None:
                # `n: int = None` takes null, too.
                self._checks[name] = _or_null(check) if name in defaults and defaults[name] is None else check
        self._rest = _check(known.get(rest, _ANY), function.__globals__, 0) if rest else None
        self._others = _check(known.get(others, _ANY), function.__globals__, 0) if others else None
        self._named = names[:end]
        self.is_needed = bool(self._checks or self._rest or self._others)

    def checked(self, positional: List[Any], keywords: Dict[str, Any], query: Optional[Mapping[str, Any]]) -> Tuple[List[Any], Dict[str, Any]]:
        """The inputs for the handler. query: parameters of the address, which are texts. Raises InputError."""
        given = list(positional)
        for at, value in enumerate(given):
            is_named = at < len(self._positional)
            check = self._checks.get(self._positional[at]) if is_named else self._rest
            if check is not None:
                given[at] = check(self._positional[at] if is_named else 'args[%d]' % at, value)
        named = dict(keywords)
        for name, value in keywords.items():
            check = self._checks.get(name) if name in self._named else self._others
            if check is not None:
                named[name] = _of_query(check, name, value, query[name]) if query and name in query else check(name, value)
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
        return None  # annotations are no reason for a handler not to start
    return checks if checks.is_needed else None


class _Any:
    """Nothing is said about the type."""


_ANY = _Any


def _annotations(function: Any) -> Dict[str, Any]:
    try:
        return dict(function.__annotations__)
    except Exception:
        # Python 3.14 and newer evaluate them here. One that cannot be evaluated stays a reference.
        import annotationlib  # type: ignore[import-not-found, unused-ignore]

        return dict(annotationlib.get_annotations(function, format=annotationlib.Format.FORWARDREF))


def _check(kind: Any, names: Dict[str, Any], depth: int) -> Optional[Check]:
    """The check of a type; None: any value passes."""
    for _ in range(2):  # a text may name a text
        if isinstance(kind, str):
            try:
                kind = eval(kind, dict(names))  # as the module itself would
            except Exception:
                return None
    if depth > _MOST_DEPTH:
        return None
    kind = getattr(kind, '__supertype__', kind)  # NewType
    origin = getattr(kind, '__origin__', None)
    if origin is not None and hasattr(kind, '__metadata__'):
        return _check(origin, names, depth)  # Annotated
    if origin in _UNION or isinstance(kind, _UNION[1:] if isinstance(_UNION[1], type) else ()):
        return _union([_check(one, names, depth + 1) for one in kind.__args__])
    if origin is getattr(typing, 'Literal', _Any):
        return _literal(kind.__args__)
    if kind is None or kind is type(None):
        return _plain('null', lambda value: value is None)
    if kind in _PLAIN:
        return _PLAIN[kind]
    return _check_class(kind, origin, names, depth)


def _check_class(kind: Any, origin: Any, names: Dict[str, Any], depth: int) -> Optional[Check]:
    base = origin if isinstance(origin, type) else kind
    if not isinstance(base, type):
        return None
    arguments = [one for one in getattr(kind, '__args__', ()) if not isinstance(one, typing.TypeVar)]
    name = base.__name__
    if base.__module__ in ('builtins', 'typing', 'collections', 'collections.abc'):
        if name in _ARRAYS:
            return _array(base, arguments, names, depth)
        if name in _OBJECTS:
            return _object(_check(arguments[1], names, depth + 1) if len(arguments) == 2 else None)
    own = dict(vars(sys.modules.get(base.__module__) or types), **{name: base})
    if hasattr(base, '__required_keys__') and hasattr(base, '__total__'):
        fields = {key: _check(one, own, depth + 1) for key, one in _annotations(base).items()}
        return _typed_dict(fields, base.__required_keys__)
    if hasattr(base, '__dataclass_fields__'):
        return _dataclass(base, own, depth)
    if any(one.__module__.partition('.')[0] == 'pydantic' and one.__name__ == 'BaseModel' for one in base.__mro__):
        return _model(base)
    return _converted(base)


def _refusal(place: str, wanted: str, value: Any) -> InputError:
    shown = {None: 'null', True: 'true', False: 'false'}.get(value, '') if value is None or isinstance(value, bool) else ''
    if isinstance(value, float):
        shown = repr(value)
    words = {str: 'text', list: 'an array', dict: 'an object', int: 'a whole number'}
    return InputError('%s: must be %s, not %s' % (place, wanted, shown or words.get(type(value), type(value).__name__)))


def _plain(wanted: str, is_right: Callable[[Any], bool]) -> Check:
    def check(place: str, value: Any) -> Any:
        if not is_right(value):
            raise _refusal(place, wanted, value)
        return value

    return check


#: A float beyond stands for several whole numbers.
_MOST_EXACT = 2**53


def _whole(place: str, value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        if abs(value) <= _MOST_EXACT:
            return int(value)
        raise _refusal(place, 'a whole number without a point or an exponent beyond 2^53', value)
    raise _refusal(place, 'a whole number', value)


def _number(place: str, value: Any) -> Any:
    if isinstance(value, float):
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        raise _refusal(place, 'a number', value)
    try:
        number = float(value)
    except OverflowError:
        raise _refusal(place, 'a number within 1.8e308', value) from None
    # A whole number that no float has stays exact.
    return number if number == value else value


_PLAIN: Dict[Any, Check] = {
    bool: _plain('true or false', lambda value: isinstance(value, bool)),
    int: _whole,
    float: _number,
    str: _plain('text', lambda value: isinstance(value, str)),
}


def _or_null(check: Check) -> Check:
    return lambda place, value: value if value is None else check(place, value)


def _union(checks: List[Optional[Check]]) -> Optional[Check]:
    known = [one for one in checks if one is not None]
    if len(known) < len(checks):
        return None

    def check(place: str, value: Any) -> Any:
        refusals, taken = [], []
        for one in known:
            try:
                taken.append(one(place, value))
            except InputError as refusal:
                refusals.append(str(refusal))
            else:
                if _is_same(value, taken[-1]):
                    return taken[-1]
        if taken:
            return taken[0]
        wanted = [said.partition(': must be ')[2].partition(', not ')[0] for said in refusals]
        nested = [said for said, what in zip(refusals, wanted) if not what or not said.startswith('%s: must be ' % place)]
        if nested:
            raise InputError(nested[0])
        raise _refusal(place, ' or '.join(wanted), value)

    return check


def _is_same(given: Any, made: Any) -> bool:
    """Whether a check changed nothing, the kind of a number neither."""
    if given is made:
        return True
    if type(given) is not type(made) or not isinstance(given, (list, dict)) or len(given) != len(made):
        return False
    if isinstance(given, list):
        return all(map(_is_same, given, made))
    return all(key in made and _is_same(one, made[key]) for key, one in given.items())


def _literal(values: Tuple[Any, ...]) -> Check:
    def check(place: str, value: Any) -> Any:
        if not any(type(one) is type(value) and one == value for one in values):
            raise InputError('%s: must be %s, not %r' % (place, ' or '.join(repr(one) for one in values), value))
        return value

    return check


def _array(base: Any, arguments: List[Any], names: Dict[str, Any], depth: int) -> Check:
    if base is tuple and arguments and arguments[-1] is not Ellipsis:
        each = [_check(one, names, depth + 1) for one in arguments]
    else:
        each = []
    item = _check(arguments[0], names, depth + 1) if arguments and not each else None

    def check(place: str, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise _refusal(place, 'an array', value)
        if each and len(value) != len(each):
            raise InputError('%s: must be an array of %d, not of %d' % (place, len(each), len(value)))
        if item is None and not each:
            return value
        return [
            value_at if one is None else one('%s[%d]' % (place, at), value_at)
            for at, (value_at, one) in enumerate(zip(value, each or [item] * len(value)))
        ]

    return check


def _object(item: Optional[Check]) -> Check:
    def check(place: str, value: Any) -> Any:
        if not isinstance(value, dict):
            raise _refusal(place, 'an object', value)
        return value if item is None else {key: item('%s.%s' % (place, key), one) for key, one in value.items()}

    return check


def _typed_dict(fields: Dict[str, Optional[Check]], required: Any) -> Check:
    def check(place: str, value: Any) -> Any:
        if not isinstance(value, dict):
            raise _refusal(place, 'an object', value)
        for key in sorted(required):
            if key not in value:
                raise InputError('%s.%s: is missing' % (place, key))
        return {key: _field(fields.get(key), '%s.%s' % (place, key), one) for key, one in value.items()}

    return check


def _field(check: Optional[Check], place: str, value: Any) -> Any:
    return value if check is None else check(place, value)


def _dataclass(base: Any, names: Dict[str, Any], depth: int) -> Check:
    import dataclasses

    fields = {one.name: one for one in dataclasses.fields(base) if one.init}
    required = [
        name for name, one in fields.items() if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
    ]
    #: Made at the first use, because a class may name itself.
    checks: Dict[str, Optional[Check]] = {}

    def check(place: str, value: Any) -> Any:
        if isinstance(value, base):
            return value
        if not isinstance(value, dict):
            raise _refusal(place, 'an object', value)
        for name in required:
            if name not in value:
                raise InputError('%s.%s: is missing' % (place, name))
        given = {}
        for name, one in value.items():
            if name not in fields:
                raise InputError('%s.%s: is no field' % (place, name))
            if name not in checks:
                checks[name] = _check(fields[name].type, names, 0)
            given[name] = _field(checks[name], '%s.%s' % (place, name), one)
        try:
            return base(**given)
        except (TypeError, ValueError) as problem:
            raise InputError('%s: %s' % (place, problem)) from problem

    return check


def _model(base: Any) -> Check:
    read = getattr(base, 'model_validate', None) or base.parse_obj

    def check(place: str, value: Any) -> Any:
        if isinstance(value, base):
            return value
        try:
            return read(value)
        except ValueError as problem:
            errors = getattr(problem, 'errors', list)()
            if not errors:
                raise InputError('%s: %s' % (place, problem)) from problem
            where = ''.join('[%d]' % one if isinstance(one, int) else '.%s' % one for one in errors[0]['loc'])
            raise InputError('%s%s: %s' % (place, where, errors[0]['msg'])) from problem

    return check


def _converted(base: Any) -> Optional[Check]:
    """The check of a class that JSON has as a text, or as the value of an enumeration; None: another class."""
    import base64
    import datetime
    import enum
    import uuid

    def moment(text: str) -> Any:
        # Python 3.11 and newer read the Z themselves.
        return datetime.datetime.fromisoformat(text[:-1] + '+00:00' if text.endswith(('Z', 'z')) else text)

    readers: Dict[Any, Any] = {
        datetime.datetime: ('a date with a time, such as 2030-01-31T12:00:00Z', moment),
        datetime.date: ('a date, such as 2030-01-31', datetime.date.fromisoformat),
        datetime.time: ('a time, such as 12:30:00', datetime.time.fromisoformat),
        bytes: ('base64 text', lambda text: base64.b64decode(text, validate=True)),
        bytearray: ('base64 text', lambda text: bytearray(base64.b64decode(text, validate=True))),
        uuid.UUID: ('a UUID', uuid.UUID),
    }
    if issubclass(base, enum.Enum):
        values = [one.value for one in base]

        def check_value(place: str, value: Any) -> Any:
            if isinstance(value, base):
                return value
            if not any(type(one) is type(value) and one == value for one in values):
                raise InputError('%s: must be %s, not %r' % (place, ' or '.join(repr(one) for one in values), value))
            return base(value)

        return check_value
    if base not in readers:
        return None
    wanted, read = readers[base]

    def check(place: str, value: Any) -> Any:
        if isinstance(value, base):
            return value
        if not isinstance(value, str):
            raise _refusal(place, wanted, value)
        try:
            return read(value)
        except ValueError:
            raise InputError('%s: must be %s, not %r' % (place, wanted, value[:100])) from None

    return check


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
            return check(place, one)
        except InputError:
            continue
    return check(place, value)
