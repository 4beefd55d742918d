"""Checks of the values in an app file: each returns the value, or raises DefinitionError with the name of the
parameter."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Mapping, Tuple, Union

#: Names in the scheduler's spelling, including MIG slices (`H100-MIG-3g.40gb`).
_GPU_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9._+-]{0,63}')
_GPU_CONDITION = re.compile(r'>=\s*[1-9]\d{0,3}(\.\d{1,3})?\s*GiB|(cc|driver|cuda)\s*>=\s*[1-9]\d{0,3}(\.\d{1,3}){0,2}', re.IGNORECASE)
_LABEL_KEY = re.compile(r'[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?')
_LABEL_VALUE = re.compile(r'[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?')
#: A part of a device's memory.
_GPU_PART = re.compile(r'\d+(\.\d+)?\s*[GM]i?B?', re.IGNORECASE)
_GPU_SEPARATOR = re.compile('[,|]')
_ENV_NAME = re.compile(r'[A-Za-z_][A-Za-z0-9_]*')


class DefinitionError(ValueError):
    """A parameter with an invalid value; the text begins with its name."""


def text(name: str, value: Any, empty: bool = True) -> str:
    if not isinstance(value, str) or not (value or empty):
        raise DefinitionError('%s: must be text%s, not %s' % (name, '' if empty else ' that is not empty', _shown(value)))
    return value


def sequence(name: str, value: Any) -> List[Any]:
    if not isinstance(value, (list, tuple)):
        raise DefinitionError('%s: must be a list, not %s' % (name, _shown(value)))
    return list(value)


def texts(name: str, value: Any) -> List[str]:
    return [text(name, item, empty=False) for item in sequence(name, value)]


def whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise DefinitionError('%s: must be a whole number of at least %d, not %r' % (name, least, value))
    return value


def number(name: str, value: Any) -> Union[int, float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) == float('inf'):
        raise DefinitionError('%s: must be a number of seconds, not %r' % (name, value))
    return value


def cuda_version(name: str, value: Any) -> str:
    if not isinstance(value, str) or re.fullmatch(r'[0-9]{1,2}\.[0-9]{1,2}', value) is None:
        raise DefinitionError("%s: must be a CUDA version as text, '12.8', not %s" % (name, _shown(value)))
    return value


def flow_key(name: str, value: Any) -> str:
    key = text(name, value, empty=False)
    if len(key) > 128 or any(ord(character) < 32 or ord(character) == 127 for character in key):
        raise DefinitionError('%s: must have 1 to 128 characters, and no control characters' % name)
    return key


#: So many in so much time, and the milliseconds of its units.
_PACE = re.compile(r'([1-9][0-9]{0,5})/([1-9][0-9]{0,4})?([smhd])')
_UNITS = {'s': 1_000, 'm': 60_000, 'h': 3_600_000, 'd': 86_400_000}


def pace(name: str, value: Any) -> str:
    found = _PACE.fullmatch(value) if isinstance(value, str) else None
    if found is not None:
        milliseconds = int(found[2] or 1) * _UNITS[found[3]]
        if int(found[1]) <= milliseconds <= 86_400_000:
            return str(value)
    raise DefinitionError("%s: must be a number and a time such as '100/m' or '5/10s' (s, m, h, d; at most 1000 a second, and a day), not %s" % (name, _shown(value)))


def head_start(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -3600 <= value <= 3600:
        raise DefinitionError('%s: must be whole seconds from -3600 to 3600, not %r' % (name, value))
    return value


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise DefinitionError('%s: must be True or False, not %r' % (name, value))
    return value


def one_of(name: str, value: Any, choices: Tuple[str, ...]) -> str:
    if value not in choices:
        raise DefinitionError('%s: must be %s, not %r' % (name, ', '.join(repr(choice) for choice in choices), value))
    return str(value)


def instance(name: str, value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise DefinitionError('%s: must be %s(…), not %s' % (name, kind.__name__, _shown(value)))
    return value


def read_all(readers: Dict[str, Callable[[], Any]]) -> Dict[str, Any]:
    """The values of all fields, in order; where several are wrong, the error names each of them."""
    values: Dict[str, Any] = {}
    problems: List[str] = []
    for field, read in readers.items():
        try:
            values[field] = read()
        except DefinitionError as error:
            problems.append(str(error))
    if problems:
        raise DefinitionError('; '.join(problems))
    return values


def quantity(parse: Callable[[Any], int], value: Any) -> int:
    try:
        return parse(value)
    except ValueError as error:
        raise DefinitionError(str(error)) from None


def gpu_names(value: Any) -> str:
    """
    Reads `'H100'`, `'H100|A100:>=40GiB'`, or a list of such terms, in the order of preference; returns one text.
    The scheduler reads the same grammar in `shared/domain/gpu-terms.ts`.
    """
    if value is not None and not isinstance(value, (str, list, tuple)):
        raise DefinitionError("gpu: must be a model such as 'H100', or a list of models, not %r" % (value,))
    listed = texts('gpu', value) if isinstance(value, (list, tuple)) else [value] if value else []
    names = [_gpu_term(name.strip()) for item in listed for name in _GPU_SEPARATOR.split(item)]
    for name in names:
        if [one.lower() for one in names].count(name.lower()) > 1:
            raise DefinitionError('gpu: %s is named twice (how many of one model: gpu_count)' % name)
    return ','.join(names)


def _gpu_term(term: str) -> str:
    model, *conditions = [part.strip() for part in term.split(':')]
    for part in (model, *conditions):
        if _GPU_PART.fullmatch(part) is not None:
            raise DefinitionError(
                'gpu: %r asks for a part of a shared device, which is not possible yet: ask for a whole device with '
                ">=%sGiB, or for a MIG slice such as 'H100-MIG-3g.40gb'" % (term, part.rstrip('GgMmIiBb '))
            )
    if _GPU_NAME.fullmatch(model) is None:
        raise DefinitionError("gpu: %r is not the name of a model, such as 'H100' or 'any'" % (term,))
    for condition in conditions:
        if _GPU_CONDITION.fullmatch(condition) is None:
            raise DefinitionError(
                "gpu: %r is no condition in %r; there are '>=40GiB' (memory of one device), 'cc>=8.9', 'driver>=550' "
                "and 'cuda>=12.4'" % (condition, term)
            )
    kinds = [condition.split('>=')[0].strip().lower() for condition in conditions]
    if len(set(kinds)) < len(kinds):
        raise DefinitionError('gpu: %r names a condition twice' % (term,))
    return ':'.join((model, *conditions))


def gpus_and_count(value: Any, count: Any) -> Tuple[str, int]:
    """Models and the number of GPUs. `'A100:2'` means two of that model, as elsewhere."""
    listed = list(value) if isinstance(value, (list, tuple)) else [value]
    counts = set()
    for at, item in enumerate(listed):
        names = _GPU_SEPARATOR.split(item) if isinstance(item, str) else []
        for place, name in enumerate(names):
            model, colon, number = name.strip().rpartition(':')
            if colon and number.isdigit() and int(number) > 0:
                names[place] = model
                counts.add(int(number))
            else:
                counts.add(0)
        if names:
            listed[at] = ','.join(names)
    told = max(counts, default=0)
    if told and (len(counts) > 1 or count not in (0, told)):
        raise DefinitionError('gpu: %r and gpu_count=%r name different numbers of GPUs; give one number, for all models' % (value, count))
    return gpu_names(listed if isinstance(value, (list, tuple)) else listed[0]), told or count


def label_key(name: str, value: Any) -> str:
    if not isinstance(value, str) or _LABEL_KEY.fullmatch(value) is None:
        raise DefinitionError(
            '%s: %s is no key of a label: letters, digits, dot, dash, underscore or slash, at most 63, with a letter or '
            'digit at both ends' % (name, _shown(value))
        )
    return value


def label_values(name: str, value: Any, most: int) -> Dict[str, List[str]]:
    """Values by the key of a label: `{'zone': ['a', 'b'], 'disk': 'nvme'}`."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise DefinitionError("%s: must be values by the key of a label, {'zone': ['a', 'b']}, not %s" % (name, _shown(value)))
    if len(value) > most:
        raise DefinitionError('%s: may name %d labels, not %d' % (name, most, len(value)))
    read = {}
    for key, given in value.items():
        listed = [given] if isinstance(given, str) else sequence(name, given)
        if not 1 <= len(listed) <= 16:
            raise DefinitionError('%s: %s must have 1 to 16 values' % (name, key))
        for one in listed:
            if not isinstance(one, str) or _LABEL_VALUE.fullmatch(one) is None:
                raise DefinitionError(
                    '%s: %s is no value of the label %s: letters, digits, dot, dash or underscore, at most 63, with a '
                    'letter or digit at both ends' % (name, _shown(one), key)
                )
        read[label_key(name, key)] = listed
    return read


def gpu_number(value: Any, names: str) -> int:
    """The number of GPUs; 0 with a model named counts as 1."""
    count = whole('gpu_count', value, 0)
    if count > 0 and names.upper() == 'NO_GPU':
        raise DefinitionError('gpu_count: is %d although gpu is NO_GPU' % count)
    return count


def start_function(value: Any) -> Any:
    if value is not None and not isinstance(value, str) and not callable(value):
        raise DefinitionError("on_start: must be a function or 'module:function', not %r" % (value,))
    return value


def variables(value: Any, parameter: str = 'env') -> List[str]:
    if value is None:
        return []
    if isinstance(value, (list, tuple)):
        value = dict(_pair(parameter, item) for item in value)
    if not isinstance(value, Mapping):
        raise DefinitionError("%s: must be {'NAME': 'value'} or ['NAME=value'], not %s" % (parameter, _shown(value)))
    for name in value:
        if not isinstance(name, str) or _ENV_NAME.fullmatch(name) is None:
            raise DefinitionError('%s: %r is not the name of a variable' % (parameter, name))
    return ['%s=%s' % pair for pair in value.items()]


def _pair(parameter: str, item: Any) -> List[str]:
    if not isinstance(item, str) or '=' not in item:
        raise DefinitionError("%s: must be 'NAME=value', not %s" % (parameter, _shown(item)))
    return item.split('=', 1)


def _shown(value: Any) -> str:
    """The value as the app file has it; of an object without a text of its own, the class."""
    kind: Any = type(value)
    return '%s(…)' % kind.__name__ if kind.__repr__ is object.__repr__ else repr(value)
