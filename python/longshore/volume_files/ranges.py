"""Conditions and ranges of a download, and ranges of an upload, by the rules of the platform's other transfers.

The same rules in TypeScript: `scheduler/api/http/ranges.ts`. Pure.
"""

from __future__ import annotations

import re

from .wire import Refusal

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple

    #: First byte, and the byte behind the last.
    Range = Tuple[int, int]

_SINGLE = re.compile(r'bytes *= *([0-9]*) *- *([0-9]*) *', re.IGNORECASE)
_CONTENT_RANGE = re.compile(r'bytes (?:([0-9]{1,15})-([0-9]{1,15})|\*)/([0-9]{1,15})', re.IGNORECASE)


def names(tags: str, etag: str, weak: bool) -> bool:
    """Whether a list of entity tags names this one, or all."""
    listed = [tag.strip() for tag in tags.split(',')]
    return '*' in listed or etag in listed or (weak and 'W/' + etag in listed)


def range_of(method: str, headers: Dict[str, str], etag: str, size: int) -> Optional[Range]:
    """The range to answer with; None: the whole. Raises Refusal (416) for a range behind the file's end."""
    sent = headers.get('range')
    if_range = headers.get('if-range')
    if method != 'GET' or sent is None or (if_range is not None and if_range.strip() != etag):
        return None
    match = _SINGLE.fullmatch(sent)
    if match is None or match.groups() == ('', ''):
        return None
    first, last = match.groups()
    if first == '':
        if _number(last) == 0:
            raise _unsatisfiable(size)
        return None if size == 0 else (max(0, size - _number(last)), size)
    begin = _number(first)
    end = size if last == '' else min(_number(last) + 1, size)
    if last != '' and _number(last) < begin:
        return None
    if begin >= size:
        raise _unsatisfiable(size)
    return begin, end


def _number(digits: str) -> int:
    """The number, as far as a file may be long: `int` refuses thousands of digits."""
    return min(int(digits.lstrip('0')[:19] or '0'), 10**18)


def _unsatisfiable(size: int) -> Refusal:
    text = 'Range begins behind the %d bytes of the file' % size
    return Refusal(416, 'range_not_satisfiable', text, [('content-range', 'bytes */%d' % size)])


class Part:
    """The bytes that a `Content-Range` names: `first` up to `end`, of `total`; a question where `asks`."""

    def __init__(self, first: int, end: int, total: int, asks: bool) -> None:
        self.first = first
        self.end = end
        self.total = total
        self.asks = asks


def part_of(headers: Dict[str, str]) -> Optional[Part]:
    """The part that an upload sends; None: it sends the whole. Raises Refusal for a header that cannot be."""
    sent = headers.get('content-range')
    if sent is None:
        return None
    match = _CONTENT_RANGE.fullmatch(sent.strip())
    if match is None:
        raise _bad_range('Content-Range must be bytes FIRST-LAST/TOTAL, or bytes */TOTAL without a body')
    first, last, total = match.groups()
    length = headers.get('content-length')
    if first is None:
        if int(length or 0) != 0 or 'transfer-encoding' in headers:
            raise _bad_range('bytes */TOTAL asks how many bytes have arrived, and has no body')
        return Part(0, 0, int(total), True)
    begin, end = int(first), int(last) + 1
    if end <= begin or end > int(total):
        raise _bad_range('Content-Range names bytes behind its own total, or none')
    if length is not None and int(length) != end - begin:
        raise _bad_range('Content-Range names %d bytes, and Content-Length says %s' % (end - begin, length))
    return Part(begin, end, int(total), False)


def _bad_range(text: str) -> Refusal:
    return Refusal(400, 'invalid_content_range', text)
