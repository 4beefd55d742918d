"""`Output`: files that outlive their task, with signed addresses. Loaded at its first use.

    @function
    def draw():
        picture.save('picture.png')
        return Output(path='picture.png').save().public_url()

The task's `outputs` list them, too. Saved bytes count in the workspace's objects.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import uuid
import weakref
from typing import Any, BinaryIO, Dict, NamedTuple, Optional, Union
from urllib import parse

from .client import GatewayError, call, send_file, workspace_of
from .task_context import context

_LONGEST_SECONDS = 604_800
_PIECE_BYTES = 1 << 20


class OutputError(RuntimeError):
    """An output that cannot be made, saved or found; the text says why."""


class _Directory:
    """A directory that goes with its object, without the warning that TemporaryDirectory gives of that."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix='longshore-output-')
        weakref.finalize(self, shutil.rmtree, self.name, True)


class Stat(NamedTuple):
    """Facts about a saved file. Times are seconds since 1970."""

    mode: str
    size: int
    accessed_at: float
    modified_at: float

    def to_dict(self) -> Dict[str, Any]:
        return dict(self._asdict())


class Output:
    """
    A file of the running task, kept after its end; a directory is kept as a zip file. `save` keeps it, `public_url`
    then gives an address that works without a token. Works in a container, in a call of a handler.
    """

    def __init__(self, *, path: Union[str, 'os.PathLike[str]']) -> None:
        if not os.environ.get('CONTAINER_ID'):
            raise OutputError('an Output can be made in a container only, by a handler that is called')
        try:
            self.task_id = str(context.task_id)
        except RuntimeError:
            raise OutputError('an Output belongs to a task: make it in a call of the handler, not in on_start') from None
        if not os.path.exists(path):
            raise FileNotFoundError('there is no file %s to save' % os.fspath(path))
        self.path = os.path.abspath(path)
        self.id: Optional[str] = None
        self._name = os.path.basename(self.path)
        #: A directory of this object alone, deleted with it.
        self._temporary: Optional[_Directory] = None
        self._saved: Optional[Stat] = None

    @classmethod
    def from_file(cls, file_handle: BinaryIO, name: str = '') -> Output:
        """An output with the bytes of an open binary file."""
        name = os.path.basename(name or _name_of(file_handle)) or uuid.uuid4().hex
        directory = _Directory()
        path = os.path.join(directory.name, name)
        with open(path, 'wb') as file:
            shutil.copyfileobj(file_handle, file)
        made = cls(path=path)
        made._temporary = directory
        return made

    @classmethod
    def from_pil_image(cls, image: Any, format: Optional[str] = 'png') -> Output:
        """An output with an image of Pillow, in that format."""
        kind = (format or 'png').lstrip('.')
        directory = _Directory()
        path = os.path.join(directory.name, '%s.%s' % (uuid.uuid4().hex, kind.lower()))
        image.save(path, format=kind)
        made = cls(path=path)
        made._temporary = directory
        return made

    def save(self) -> Output:
        """Keeps the file, as it is now. Raises OutputError."""
        what = 'cannot save output %s' % self._name
        path, name = self.path, self._name
        if os.path.isdir(path):
            self._temporary = self._temporary or _Directory()
            base = os.path.join(self._temporary.name, uuid.uuid4().hex)
            path, name = shutil.make_archive(base, 'zip', path), name + '.zip'
        facts = os.stat(path)
        try:
            self.id = _kept(what, path, facts.st_size, name, self.task_id)
        except GatewayError as problem:
            raise OutputError(str(problem)) from problem
        self._saved = Stat(oct(facts.st_mode & 0o777), facts.st_size, facts.st_atime, facts.st_mtime)
        return self

    def public_url(self, expires: int = 3600) -> str:
        """An address that gives the bytes for so many seconds; negative: as long as can be, seven days. Raises OutputError."""
        what = 'cannot give an address of output %s' % self._name
        if self.id is None:
            raise OutputError('%s: save it first' % what)
        seconds = _LONGEST_SECONDS if expires < 0 else max(1, min(int(expires), _LONGEST_SECONDS))
        path = '/api/v1/output/%s/%s/url?expires_in=%d' % (workspace_of(what), parse.quote(self.id, safe=''), seconds)
        try:
            return str(call(path, what).get('url'))
        except GatewayError as problem:
            raise OutputError(str(problem)) from problem

    def stat(self) -> Stat:
        """Facts about the file that was saved. Raises OutputError before."""
        if self._saved is None:
            raise OutputError('output %s is not saved yet' % self._name)
        return self._saved

    def exists(self) -> bool:
        """Whether the output was saved, and is still kept."""
        try:
            return self.id is not None and bool(self.public_url(1))
        except OutputError:
            return False


def _kept(what: str, path: str, size: int, name: str, task_id: str) -> str:
    """Uploads the file as an object of this stub, and names it as an output of the task. Returns the output's id."""
    # Each save is an object of its own: equal bytes of two tasks must not share a life.
    key = 'output-' + uuid.uuid4().hex
    made = call('/api/v1/gateway/objects', what, _json({'hash': key, 'size': str(size), 'overwrite': True}))
    if made.get('ok') is not True:
        raise GatewayError('%s: %s' % (what, made.get('errorMsg') or 'it was refused'))
    with open(path, 'rb') as file:
        send_file(str(made['presignedUrl']), file, size, what)
    # A bucket was given the bytes directly, and the scheduler looks at them when it is asked.
    head = call('/api/v1/gateway/objects/' + key, what)
    if head.get('exists') is not True:
        raise GatewayError('%s: its bytes did not arrive' % what)
    body = {'task_id': task_id, 'object_id': made['objectId'], 'name': name[-255:]}
    return str(call('/api/v1/output/' + workspace_of(what), what, _json(body)).get('id'))


def _name_of(file: Any) -> str:
    name = getattr(file, 'name', '')
    return name if isinstance(name, str) else ''


def _json(value: Any) -> bytes:
    return json.dumps(value).encode('utf-8')
