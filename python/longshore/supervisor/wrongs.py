"""Requests that fail: a code for programs and a text for people."""

from __future__ import annotations

import errno
import os

_CODES = {
    errno.ENOENT: 'not_found',
    errno.ESRCH: 'not_found',
    errno.ENOTDIR: 'not_a_directory',
    errno.EISDIR: 'is_a_directory',
    errno.EEXIST: 'exists',
    errno.ENOTEMPTY: 'not_empty',
    errno.EACCES: 'denied',
    errno.EPERM: 'denied',
    errno.EROFS: 'denied',
    # A program of another format, or one that is being written: a shell ends with 126 for both, as for `denied`.
    errno.ENOEXEC: 'denied',
    errno.ETXTBSY: 'denied',
    errno.ENOSPC: 'no_space',
    errno.EDQUOT: 'no_space',
    errno.EFBIG: 'too_large',
    errno.E2BIG: 'too_large',
    errno.EINVAL: 'bad_request',
    errno.ENAMETOOLONG: 'bad_request',
    errno.ELOOP: 'bad_request',
    errno.ECONNREFUSED: 'refused',
}


class Wrong(Exception):
    """An answer with `ok` false."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        #: The kernel's number, where it refused; else 0.
        self.number = 0


def of_os_error(error: OSError, what: str, text: str = '') -> Wrong:
    """`what` is the path or process that the error is about."""
    number = error.errno or 0
    said = text or '%s: %s' % (what, os.strerror(number) if number else error)
    wrong = Wrong(_CODES.get(number, 'failed'), said)
    wrong.number = number
    return wrong
