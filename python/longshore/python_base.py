"""Copies the Python that runs this file, so that it runs in containers of any image: the base of supervisors.

`python3 -I -S python_base.py make DIRECTORY` runs in a container of the machine's base image. The copy has the
interpreter, the standard library, all shared libraries that the modules below use, and the loader that starts them.
`check DIRECTORY` runs by the copy, in a container that has no Python. Must stay true: `complete` is written last.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Set

#: Modules that supervisors may import, besides modules that need no library.
MODULES = (
    'array',
    'base64',
    'binascii',
    'collections',
    'contextlib',
    'encodings.idna',
    'encodings.latin_1',
    'errno',
    'fcntl',
    'fnmatch',
    'functools',
    'grp',
    'hashlib',
    'heapq',
    'http.client',
    'json',
    'math',
    'mmap',
    'os',
    'posixpath',
    'pty',
    'pwd',
    'queue',
    'random',
    're',
    'resource',
    'select',
    'selectors',
    'shlex',
    'shutil',
    'signal',
    'socket',
    'stat',
    'struct',
    'subprocess',
    'tarfile',
    'tempfile',
    'termios',
    'threading',
    'time',
    'traceback',
    'tty',
    'typing',
    'unicodedata',
    'uuid',
    'zlib',
)
#: Likewise, where the Python has them.
OPTIONAL = ('_posixsubprocess', 'bz2', 'ctypes', 'lzma')

MARK = 'complete'
_LEFT_OUT = {
    '__pycache__', 'dist-packages', 'ensurepip', 'idlelib', 'lib2to3', 'pydoc_data', 'site-packages', 'test', 'tests',
    'tkinter', 'turtledemo',
}


def load() -> None:
    for name in MODULES:
        importlib.import_module(name)
    for name in OPTIONAL:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    # The C library loads more of itself at the first question for a name.
    import grp
    import pwd
    import socket

    for ask in (lambda: pwd.getpwuid(0), lambda: grp.getgrgid(0), lambda: socket.getaddrinfo('localhost', 1)):
        try:
            ask()
        except (KeyError, OSError):
            pass


def mapped() -> 'Set[str]':
    """Files whose code this process runs."""
    found = set()
    with open('/proc/self/maps', encoding='utf-8', errors='surrogateescape') as maps:
        for line in maps:
            parts = line.rstrip('\n').split(None, 5)
            if len(parts) == 6 and 'x' in parts[1] and parts[5].startswith('/'):
                found.add(parts[5])
    return found


def make(target: str) -> None:
    load()
    interpreter = os.path.realpath(sys.executable)
    library = os.path.dirname(os.path.realpath(os.__file__))
    version = 'python%d.%d' % sys.version_info[:2]
    home = os.path.join(target, 'python', getattr(sys, 'platlibdir', 'lib'), version)
    shutil.copytree(library, home, symlinks=False, ignore=_left_out, ignore_dangling_symlinks=True)
    modules = _extension_modules()
    for path in modules:
        if not path.startswith(library + os.sep):
            _copy(path, os.path.join(home, 'lib-dynload', os.path.basename(path)))
    os.makedirs(os.path.join(target, 'python', 'bin'))
    _copy(interpreter, os.path.join(target, 'python', 'bin', 'python3'))
    libraries = os.path.join(target, 'lib')
    os.makedirs(libraries)
    loader = _loader(interpreter)
    _copy(os.path.realpath(loader), os.path.join(target, 'ld.so'))
    for path in mapped() - modules - {interpreter}:
        _copy(path, os.path.join(libraries, os.path.basename(path)))
        # Programs ask for a library by another name than that of its file.
        for name in os.listdir(os.path.dirname(path)):
            other = os.path.join(libraries, name)
            if os.path.realpath(os.path.join(os.path.dirname(path), name)) == path and not os.path.lexists(other):
                os.symlink(os.path.basename(path), other)
    _compile(home, library)
    _open_up(target)
    with open(os.path.join(target, MARK), 'w', encoding='utf-8') as mark:
        mark.write(sys.version)
    os.chmod(os.path.join(target, MARK), 0o644)


def check(target: str) -> None:
    """Fails where anything comes from elsewhere than the copy."""
    load()
    os.stat(os.path.join(target, MARK))
    strange = [path for path in mapped() if not path.startswith(target + os.sep)]
    if strange:
        raise SystemExit('the copy runs code of %s' % ', '.join(sorted(strange)))


def _left_out(folder: str, names: 'List[str]') -> 'List[str]':
    return [name for name in names if name in _LEFT_OUT or name.startswith('config-') or name.endswith('.a')]


def _extension_modules() -> 'Set[str]':
    files = (getattr(module, '__file__', None) for module in list(sys.modules.values()))
    return {os.path.realpath(path) for path in files if path and path.endswith('.so')}


def _loader(program: str) -> str:
    """The loader that an ELF file names."""
    import struct

    with open(program, 'rb') as file:
        data = file.read(64 * 1024)
    if data[:4] != b'\x7fELF' or data[4] != 2:
        raise SystemExit('%s is no 64-bit program' % program)
    order = '<' if data[5] == 1 else '>'
    start = struct.unpack_from(order + 'Q', data, 32)[0]
    size, count = struct.unpack_from(order + 'HH', data, 54)
    for at in range(start, start + size * count, size):
        if struct.unpack_from(order + 'I', data, at)[0] == 3:
            offset = struct.unpack_from(order + 'Q', data, at + 8)[0]
            return data[offset : data.index(b'\0', offset)].decode()
    raise SystemExit('%s names no loader: it is linked statically' % program)


def _copy(source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copy2(source, target)


def _compile(home: str, library: str) -> None:
    """Compiles what was imported: containers see the copy read-only."""
    import py_compile

    for module in list(sys.modules.values()):
        path = os.path.realpath(getattr(module, '__file__', None) or '')
        if path.startswith(library + os.sep) and path.endswith('.py'):
            py_compile.compile(os.path.join(home, os.path.relpath(path, library)), quiet=1)


def _open_up(target: str) -> None:
    """Any user of an image may read the copy."""
    os.chmod(target, 0o755)
    for folder, folders, files in os.walk(target):
        for name in folders + files:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                runs = os.path.isdir(path) or os.stat(path).st_mode & 0o111
                os.chmod(path, 0o755 if runs else 0o644)


if __name__ == '__main__':
    {'make': make, 'check': check}[sys.argv[1]](sys.argv[2])
