"""What to return instead of a value that is not JSON. Imported when a handler returned one."""

import re

_BYTES = (
    'bytes go as text, `base64.b64encode(data).decode()`, as a file by `Output`, or as the body of an `@asgi` application'
)
_LIST = 'return `.tolist()` of it'

#: By the name of the type that the JSON encoder refused.
_BY_TYPE = {
    'bytes': _BYTES,
    'bytearray': _BYTES,
    'memoryview': _BYTES,
    'ndarray': _LIST,
    'Tensor': '%s; of a large one, save a file and return its name' % _LIST,
    'Series': _LIST,
    'DataFrame': "return `.to_dict('records')` of it",
    'set': 'return `sorted(…)` or `list(…)` of it',
    'frozenset': 'return `sorted(…)` or `list(…)` of it',
    'datetime': 'return `.isoformat()` of it',
    'date': 'return `.isoformat()` of it',
    'Decimal': 'return `float(…)` or `str(…)` of it',
    'Path': 'return `str(…)` of it',
    'PosixPath': 'return `str(…)` of it',
    'UUID': 'return `str(…)` of it',
    'Image': 'save it into a file, and return an `Output` address of that',
}

#: Scalars of numpy have a type for each width.
_SCALAR = re.compile(r'^(u?int|float|bool)\d*_?$')

_OTHERS = 'return dictionaries, lists, texts, numbers, booleans and None'


def cure_of(error: BaseException) -> str:
    """A clause for the end of the message."""
    text = str(error)
    if 'Out of range float' in text:
        return 'put None in the place of NaN and infinity'
    if 'Circular' in text:
        return 'a value must not hold itself'
    found = re.match(r'Object of type (\w+) is not JSON', text)
    name = found.group(1) if found else ''
    if _SCALAR.match(name):
        return 'return `.item()` of it'
    return _BY_TYPE.get(name, _OTHERS)
