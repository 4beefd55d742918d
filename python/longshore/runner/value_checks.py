"""
Checks of single values: numbers, texts, dates, values of enumerations. Each gives the value for the handler, or raises
Refusal, which says the place, what is expected there, and what came.
"""

from __future__ import annotations

import json

from .inputs import InputError, number_or_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

    #: Gives the value for the handler. Raises InputError, whose text begins with the place.
    Check = Callable[[str, Any], Any]

#: A float beyond stands for several whole numbers.
_MOST_EXACT = 2**53
#: Characters of a value or of a name that are shown.
_MOST_SHOWN = 100
#: Values that are named where only some are taken.
_MOST_NAMED = 20
#: The form of a value that JSON cannot say.
_NO_FORM = object()
_WORDS = {str: 'text', list: 'an array', tuple: 'an array', dict: 'an object', int: 'a whole number'}


class Refusal(InputError):
    """A value of the wrong type, or of the right one and not taken."""

    def __init__(self, place: str, wanted: str, came: str) -> None:
        super().__init__('%s: must be %s, not %s' % (place, wanted, came))
        self.place, self.wanted, self.came = place, wanted, came


def refusal(place: str, wanted: str, value: Any) -> Refusal:
    """For a value of another JSON type: the type is named."""
    if value is None or isinstance(value, (bool, float)):
        return Refusal(place, wanted, shown(value))
    return Refusal(place, wanted, _WORDS.get(type(value), type(value).__name__))


def wrong_value(place: str, wanted: str, value: Any) -> Refusal:
    """For a value of the right JSON type: the value is shown."""
    return Refusal(place, wanted, shown(value)) if isinstance(value, (str, int)) else refusal(place, wanted, value)


def shown(value: Any) -> str:
    """The value as its caller wrote it, shortened."""
    if value is None or isinstance(value, (bool, float)):
        return json.dumps(value)
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + '…'


def inside(place: str, key: Any) -> str:
    """The place of an item or of a field."""
    if isinstance(key, int):
        return '%s[%d]' % (place, key)
    text = str(key)
    return '%s.%s' % (place, text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + '…')


def of_key(check: Check) -> Check:
    """The check of a key, which JSON has as a text."""

    def checked(place: str, key: str) -> Any:
        tries: List[Any] = [key, number_or_text(key)]
        if key in ('true', 'false'):
            tries.append(key == 'true')
        for one in tries:
            try:
                return check(place, one)
            except Refusal as refused:
                wanted = refused.wanted
        raise InputError('%s: each key must be %s, not %s' % (place, wanted, shown(key)))

    return checked


def scalar(check: Check) -> Check:
    """Marks the check of a value that may be the key of an object, too."""
    check.is_scalar = True  # type: ignore[attr-defined]
    return check


def _plain(wanted: str, is_right: Callable[[Any], bool]) -> Check:
    def check(place: str, value: Any) -> Any:
        if not is_right(value):
            raise refusal(place, wanted, value)
        return value

    return scalar(check)


@scalar
def _whole(place: str, value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        if abs(value) <= _MOST_EXACT:
            return int(value)
        raise refusal(place, 'a whole number without a point or an exponent beyond 2^53', value)
    raise refusal(place, 'a whole number', value)


@scalar
def _number(place: str, value: Any) -> Any:
    if isinstance(value, float):
        if _is_finite(value):
            return value
        # JSON has 1e999, which Python reads as infinite.
        raise refusal(place, 'a number within 1.8e308', value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise refusal(place, 'a number', value)
    try:
        number = float(value)
    except OverflowError:
        raise refusal(place, 'a number within 1.8e308', value) from None
    # A whole number that no float has stays exact.
    return number if number == value else value


def _is_finite(number: float) -> bool:
    return number - number == 0


PLAIN: Dict[Any, Check] = {
    bool: _plain('true or false', lambda value: isinstance(value, bool)),
    int: _whole,
    float: _number,
    str: _plain('text', lambda value: isinstance(value, str)),
    type(None): _plain('null', lambda value: value is None),
}


def literal(values: Sequence[Any]) -> Optional[Check]:
    """The check of `Literal`; None: JSON cannot say one of its values."""
    return _among([(_form(one), one) for one in values])


def enumeration(base: Any) -> Optional[Check]:
    """The check of an enumeration, which JSON has as its value; None: it has a value that JSON cannot say."""
    import enum

    if issubclass(base, enum.Flag):
        return _flags(base)
    choices = _among([(_form(one.value), one) for one in base])
    if choices is None:
        return None
    reads_others = base._missing_.__func__ is not enum.Enum._missing_.__func__

    def check(place: str, value: Any) -> Any:
        if isinstance(value, base):
            return value
        try:
            return choices(place, value)
        except Refusal:
            if not reads_others:
                raise
            try:
                return base(value)
            except (ValueError, TypeError, KeyError, AttributeError):
                pass
            raise

    return scalar(check)


def _flags(base: Any) -> Check:
    most = 0
    for one in base.__members__.values():
        most |= one.value

    def check(place: str, value: Any) -> Any:
        if isinstance(value, base):
            return value
        number = _whole(place, value)
        if number < 0 or number & ~most:
            raise wrong_value(place, 'a sum of the values of %s' % base.__name__, number)
        return base(number)

    return scalar(check)


def _form(value: Any) -> Any:
    """The value as JSON says it."""
    import enum

    if isinstance(value, enum.Enum):
        return _form(value.value)
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode('ascii')
    if isinstance(value, (tuple, list)):
        forms = [_form(one) for one in value]
        return _NO_FORM if _NO_FORM in forms else forms
    return value if value is None or isinstance(value, (str, int, float)) else _NO_FORM


def _among(choices: List[Tuple[Any, Any]]) -> Optional[Check]:
    """The check of a value that is one of these, each with its form in JSON."""
    if not choices or any(form is _NO_FORM for form, _ in choices):
        return None
    named = [json.dumps(form, ensure_ascii=False) if isinstance(form, list) else shown(form) for form, _ in choices[:_MOST_NAMED]]
    wanted = ' or '.join(named)
    if len(choices) > _MOST_NAMED:
        wanted += ', or one of %d others' % (len(choices) - _MOST_NAMED)

    def check(place: str, value: Any) -> Any:
        for form, one in choices:
            if _is_value(value, form):
                return one
        raise wrong_value(place, wanted, value)

    return scalar(check)


def _is_value(given: Any, form: Any) -> bool:
    if isinstance(form, list):
        return isinstance(given, list) and len(given) == len(form) and all(map(_is_value, given, form))
    if form is None or isinstance(form, bool) or isinstance(given, bool):
        return given is form
    if isinstance(form, str):
        return isinstance(given, str) and given == form
    return isinstance(given, (int, float)) and given == form


def converted(base: Any) -> Optional[Check]:
    """The check of a class that JSON has as a text or as a number; None: another class."""
    # An app whose annotation is such a class has imported its module.
    found = {'datetime': _moments, 'decimal': _decimals, 'pathlib': _paths, 'uuid': _uuids}.get(base.__module__.partition('.')[0])
    readers: Dict[Any, Any] = _bytes() if base in (bytes, bytearray) else found() if found is not None else {}
    if base not in readers:
        return None
    wanted, takes, read = readers[base]

    def check(place: str, value: Any) -> Any:
        if isinstance(value, base):
            return value
        if not isinstance(value, takes) or isinstance(value, bool):
            raise refusal(place, wanted, value)
        try:
            return read(value)
        except (ValueError, ArithmeticError):
            raise wrong_value(place, wanted, value) from None

    return scalar(check)


def _bytes() -> Dict[Any, Any]:
    import base64

    return {
        bytes: ('base64 text', str, lambda text: base64.b64decode(text, validate=True)),
        bytearray: ('base64 text', str, lambda text: bytearray(base64.b64decode(text, validate=True))),
    }


def _uuids() -> Dict[Any, Any]:
    import uuid

    return {uuid.UUID: ('a UUID', str, uuid.UUID)}


def _paths() -> Dict[Any, Any]:
    import pathlib

    return {one: ('the text of a path', str, one) for one in (pathlib.Path, pathlib.PurePath, pathlib.PosixPath, pathlib.PurePosixPath)}


def _decimals() -> Dict[Any, Any]:
    import decimal

    def read(value: Any) -> Any:
        if isinstance(value, str) and value.strip() != value:
            raise ValueError(value)
        # The text of a float has the digits that its caller wrote, as far as a float has them.
        number = decimal.Decimal(repr(value) if isinstance(value, float) else value)
        if not number.is_finite():
            raise ValueError(value)
        return number

    return {decimal.Decimal: ("a decimal number such as 19.99 or '19.99'", (str, int, float), read)}


def _moments() -> Dict[Any, Any]:
    import datetime
    import re

    duration = re.compile(r'(-)?P(?=.)(?:(\d+)W)?(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?', re.ASCII)

    def with_zone(read: Any) -> Any:
        # Python 3.11 and newer read the Z themselves.
        return lambda text: read(text[:-1] + '+00:00' if text.endswith(('Z', 'z')) else text)

    def span(value: Any) -> Any:
        if not isinstance(value, str):
            return datetime.timedelta(seconds=value)
        match = duration.fullmatch(value)
        if match is None:
            raise ValueError(value)
        sign, weeks, days, hours, minutes, seconds = match.groups(default='0')
        long = datetime.timedelta(weeks=int(weeks), days=int(days), hours=int(hours), minutes=int(minutes), seconds=float(seconds))
        return -long if sign == '-' else long

    return {
        datetime.datetime: ('a date with a time such as 2030-01-31T12:00:00Z', str, with_zone(datetime.datetime.fromisoformat)),
        datetime.date: ('a date such as 2030-01-31', str, datetime.date.fromisoformat),
        datetime.time: ('a time such as 12:30:00', str, with_zone(datetime.time.fromisoformat)),
        datetime.timedelta: ("a number of seconds, or a duration such as 'PT1H30M'", (str, int, float), span),
    }
