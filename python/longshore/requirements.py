"""Requirements files, read with the files that they name, because a build has none of them."""

import os
import re
from typing import Iterator, List, Optional, Sequence, Tuple, Union

from .checks import DefinitionError

#: Files that one file may lead to.
MAX_FILES = 100
#: A package as pip takes it, such as `numpy==2.1.0`; files of requirements end in .txt or .in.
_PACKAGE = re.compile(r'(?!.*\.(?:txt|in)$)[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[^]]*\])?(?:\s*[=<>!~].*)?')
_OPTION = re.compile(r'(?:(-r|-c|-e)\s*|--(requirement|constraint|editable)(?:\s+|=))(.+)')
_URL = re.compile(r'(?:[a-z0-9.+-]+@\s*)?[a-z][a-z0-9+.-]*:', re.IGNORECASE)
_COMMENT = re.compile(r'(^|\s)#.*$')


def requirements(given: Union[str, Sequence[str]], parameter: str) -> List[str]:
    """
    Lines of a requirements file, or of a list, and of files that they name by `-r`. A line of a file of constraints
    (`-c`) begins with `constraint: `. Paths count from the file that names them. Addresses stay as they are.

    Raises DefinitionError, which names the file and the line.
    """
    reader = _Reader(parameter)
    if isinstance(given, str):
        return list(reader.file(given, constrains=False))
    return [line for item in given for line in reader.line(item.strip(), '', 'the list', constrains=False)]


class _Reader:
    def __init__(self, parameter: str) -> None:
        self._parameter = parameter
        self._seen: List[Tuple[str, bool]] = []

    def file(self, path: str, constrains: bool) -> Iterator[str]:
        seen = (os.path.abspath(path), constrains)
        if seen in self._seen:
            return
        self._seen.append(seen)
        if len(self._seen) > MAX_FILES:
            raise self._error('%s leads to more than %d files' % (self._seen[0][0], MAX_FILES))
        try:
            with open(path, encoding='utf-8-sig') as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else 'it is not in UTF-8'
            hint = ''
            if len(self._seen) == 1 and _PACKAGE.fullmatch(path):
                hint = '; a text is the path of a requirements file, and packages are a list: [%r]' % path
            raise self._error('cannot read %s: %s%s' % (path, why, hint)) from None
        for number, line in _joined(text):
            yield from self.line(line, os.path.dirname(path), 'line %d of %s' % (number, path), constrains)

    def line(self, line: str, folder: str, where: str, constrains: bool) -> Iterator[str]:
        option = _OPTION.fullmatch(line)
        kind = (option.group(1) or option.group(2)).lstrip('-')[0] if option else ''
        named = option.group(3).strip() if option else line
        if kind and kind in 'rc' and not _URL.match(named):
            yield from self.file(os.path.join(folder, named), constrains or kind == 'c')
        elif _is_path(named):
            raise self._error(
                '%s, %r: a build has no files of this folder. from_dockerfile(…) with COPY installs them, '
                "and so does a line with the package's address" % (where, line)
            )
        elif constrains and not line.startswith('-'):
            yield 'constraint: ' + line
        else:
            # Options in a file of constraints, such as an index, are those of the whole command.
            yield line

    def _error(self, said: str) -> DefinitionError:
        return DefinitionError('%s: %s' % (self._parameter, said))


def _joined(text: str) -> Iterator[Tuple[int, str]]:
    """Lines with those that follow a backslash, without comments, each with the number of its first."""
    held: Optional[str] = None
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        if held is None:
            first = number
        if line.endswith('\\') and not line.lstrip().startswith('#'):
            held = (held or '') + line[:-1]
            continue
        whole = _COMMENT.sub('', (held or '') + line).strip()
        held = None
        if whole:
            yield first, re.sub(r'\s+', ' ', whole)
    if held is not None and held.strip():
        yield first, held.strip()


def _is_path(named: str) -> bool:
    """A path, and no name of a package or address."""
    first = re.split(r'[\s;@]', named, maxsplit=1)[0]
    return not named.startswith('-') and not _URL.match(named) and ('/' in first or first.endswith(('.whl', '.tar.gz', '.zip')) or first == '.')
