"""
A note on stderr where calls reach a deployed version that is not the app file as it is: `python3 app.py` would else run
old code without a word. Only on a person's machine. Loaded at its first use.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import json
import os
import sys
import threading
import zipfile
import zlib
from typing import TYPE_CHECKING, Any, Dict, List, Optional, TextIO
from urllib import parse

from .client import GatewayError, call, tail_of, workspace_of

if TYPE_CHECKING:
    from .handlers import Handler

#: How long the end of a program waits for the comparison. It takes four short requests.
_END_SECONDS = 5.0
#: The end of an archive that is read: it has the names of some ten thousand files.
_TAIL_BYTES = 1 << 20
#: Files whose contents are compared; larger ones by their size alone.
_MOST_READ_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20
#: Names of files in the note.
_NAMES = 3
#: Folders that no app is deployed with.
_NEVER = ('.git', '.venv', '__pycache__', 'node_modules', 'site-packages', 'dist-packages')


def begin(handler: Handler[..., Any], name: str, file: str) -> None:
    """Compares the deployment of the handler with its file, beside the calls of this program. name: of the handler in
    its file."""
    compared = threading.Thread(target=_compare, args=(handler, name, file, sys.stderr), daemon=True)
    compared.start()
    atexit.register(compared.join, _END_SECONDS)


def recipe_of(handler: Handler[..., Any]) -> str:
    """A digest of the parameters, which `longshore deploy` keeps with a version."""
    described = handler.described('', '')
    # Paths are this machine's.
    described['image'] = {name: value for name, value in described['image'].items() if name not in ('contextDir', 'dockerfilePath')}
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode('utf-8')).hexdigest()[:16]


def _compare(handler: Handler[..., Any], name: str, file: str, out: TextIO) -> None:
    try:
        deployed = _deployed(handler)
        different = _differences(deployed, handler, name, file) if deployed else []
        if deployed and different:
            print(_note(handler, deployed, different, '%s:%s' % (_shown(file), name)), file=out, flush=True)
    except (GatewayError, OSError, ValueError, zipfile.BadZipFile):
        pass  # a token may be for calls alone; the call itself says what else is wrong


def _note(handler: Handler[..., Any], deployed: Dict[str, Any], different: List[str], target: str) -> str:
    more = len(different) - _NAMES
    listed = ', '.join(different[:_NAMES]) + (' and %d more' % more if more > 0 else '')
    return (
        'note: calls of %s run its deployed version %s, and the file differs from it (%s): `longshore deploy %s` deploys the file, LONGSHORE_RUN=file runs it as it is'
        % (
            handler.deployment_name,
            deployed.get('version'),
            listed,
            target,
        )
    )


def _deployed(handler: Handler[..., Any]) -> Optional[Dict[str, Any]]:
    """The record of the version that calls of the handler's name reach; None: nothing is deployed."""
    what = 'cannot read the deployment %s' % handler.deployment_name
    query = parse.urlencode({'limit': 1000, 'filters': json.dumps({'name': handler.deployment_name})})
    listed = call('/api/v1/gateway/deployments?%s' % query, what).get('deployments') or []
    kind = handler.stub_type.partition('/')[0]
    versions = [one for one in listed if one.get('name') == handler.deployment_name and str(one.get('stubType')).partition('/')[0] == kind]
    if not versions:
        return None
    serving = max(versions, key=lambda one: (one.get('serving') is True, int(one.get('version') or 0)))
    return call('/api/v1/deployment/%s/%s' % (workspace_of(what), parse.quote(str(serving.get('id')), safe='')), what)


def _differences(deployed: Dict[str, Any], handler: Handler[..., Any], name: str, file: str) -> List[str]:
    """Paths of files that differ, and `settings`; empty: a deploy would make the same version."""
    config = json.loads((deployed.get('stub') or {}).get('config') or '{}')
    module, _, deployed_name = str(config.get('handler') or '').partition(':')
    inside = module.replace('.', os.sep) + '.py'
    if not module:
        return []
    if not file.endswith(os.sep + inside) or deployed_name != name:
        return ['it was deployed from %s:%s' % (inside, deployed_name)]
    different = _files(str(deployed.get('object_id') or ''), file[: -len(inside) - 1], file)
    recipe = _extra(config).get('recipe')
    if recipe and recipe != recipe_of(handler):
        different.append('settings')
    return different


def _extra(config: Dict[str, Any]) -> Dict[str, Any]:
    extra = config.get('extra') or {}
    if isinstance(extra, str):
        extra = json.loads(extra or '{}')
    return extra if isinstance(extra, dict) else {}


def _files(object_id: str, root: str, own: str) -> List[str]:
    """Paths of files that are not as they were deployed, and of modules that this program loaded and that were not."""
    if not object_id:
        return []
    what = 'cannot read the code of the deployment'
    found = call('/api/v1/object/%s/%s/download-url' % (workspace_of(what), parse.quote(object_id, safe='')), what)
    tail = tail_of(str(found.get('url')), _TAIL_BYTES, what)
    with zipfile.ZipFile(io.BytesIO(tail)) as archive:
        deployed = {one.filename: one for one in archive.infolist() if not one.filename.endswith('/')}
    outputs = _outputs()
    changed = [path for path, one in deployed.items() if _is_changed(os.path.join(root, path), one, outputs)]
    added = [path for path in _loaded(root, own) if path not in deployed]
    # The app file first: it is what the person has in mind.
    first = os.path.relpath(own, root)
    return sorted(changed, key=lambda path: (path != first, path)) + sorted(added)


def _is_changed(path: str, deployed: zipfile.ZipInfo, outputs: List[Any]) -> bool:
    try:
        found = os.stat(path)
        if (found.st_dev, found.st_ino) in outputs:
            return False
        if found.st_size != deployed.file_size:
            return True
        return found.st_size <= _MOST_READ_BYTES and _checksum(path) != deployed.CRC
    except OSError:
        return True


def _checksum(path: str) -> int:
    value = 0
    with open(path, 'rb') as file:
        for piece in iter(lambda: file.read(_PIECE_BYTES), b''):
            value = zlib.crc32(piece, value)
    return value


def _outputs() -> List[Any]:
    """Files into which this program prints: `python3 app.py > app.log` changes one of the folder."""
    found = []
    for stream in (1, 2):
        try:
            one = os.fstat(stream)
            found.append((one.st_dev, one.st_ino))
        except OSError:
            continue
    return found


def _loaded(root: str, own: str) -> List[str]:
    """Paths, from the root, of the modules below it that this program has loaded. The program's own file counts where it
    has the handler, because others call the app from outside."""
    paths = set()
    for name, module in list(sys.modules.items()):
        path = os.path.abspath(getattr(module, '__file__', None) or '')
        if not path.startswith(root + os.sep) or not path.endswith('.py') or (name == '__main__' and path != own):
            continue
        inside = os.path.relpath(path, root)
        if not set(inside.split(os.sep)) & set(_NEVER):
            paths.add(inside.replace(os.sep, '/'))
    return sorted(paths)


def _shown(file: str) -> str:
    inside = os.path.relpath(file)
    return file if inside.startswith('..') else inside
