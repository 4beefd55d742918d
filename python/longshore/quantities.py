"""Python's only parser of cpu and memory texts; shared/domain/quantities.ts is the other one."""

from __future__ import annotations

import math
import re
from typing import Union

_TEXT = re.compile(r'\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)\s*', re.IGNORECASE)
#: A number larger than any machine needs, and the last one that every reader of the request keeps exactly.
_LARGEST = 2**53 - 1
_MEMORY_MIB = {'': 1, 'm': 1, 'mb': 1, 'mi': 1, 'mib': 1, 'g': 1000, 'gb': 1000, 'gi': 1024, 'gib': 1024}


def cpu_millicores(value: Union[int, float, str]) -> int:
    """`2`, `0.5`, `'2'`: cores; `'500m'`: thousandths of one. Raises ValueError."""
    number, unit = _split(value, 'cpu', "a number of cores (0.5, 2) or millicores as text ('500m')")
    if unit not in ('', 'm'):
        raise ValueError("cpu: unknown unit %r in %r; 'm' (millicores) is the only one" % (unit, value))
    return _positive('cpu', value, number * (1 if unit == 'm' else 1000))


def memory_mib(value: Union[int, float, str]) -> int:
    """A number is MiB; text may have a unit: m, mb, mi, mib (×1), g, gb (×1000), gi, gib (×1024). Raises ValueError."""
    number, unit = _split(value, 'memory', "a number of MiB (512) or text with a unit ('512mi', '2gi')")
    if unit not in _MEMORY_MIB:
        known = ', '.join(name for name in _MEMORY_MIB if name)
        raise ValueError('memory: unknown unit %r in %r; known are %s' % (unit, value, known))
    return _positive('memory', value, number * _MEMORY_MIB[unit])


def _split(value: Union[int, float, str], name: str, wanted: str) -> 'tuple[float, str]':
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number):
            return number, ''
    elif isinstance(value, str):
        match = _TEXT.fullmatch(value)
        if match is not None:
            return float(match.group(1)), match.group(2).lower()
    raise ValueError('%s: %r is not %s' % (name, value, wanted))


def _positive(name: str, value: object, number: float) -> int:
    # Units are rounded up; the rounding before removes errors of binary fractions (1.1 × 1000).
    if number > _LARGEST:
        raise ValueError('%s: %r is too large' % (name, value))
    whole = math.ceil(round(number, 6))
    if whole <= 0:
        raise ValueError('%s: must be greater than 0, not %r' % (name, value))
    return whole
