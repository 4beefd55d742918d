"""Asks a development server's runner to import its app anew where it has to (`runner/reloading.py`), and passes the outcome on."""

from __future__ import annotations

import _socket as socket  # `socket` adds selectors and enums (3 ms)
import json
import os

from ..runner.reload_name import name_of
from .loop import READ
from .wrongs import Wrong

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from .channel import Channel
    from .loop import Loop

    Value = Dict[str, Any]

#: Time for the app to be loaded, after which the answer says that it still is.
_WAIT_SECONDS = 20.0
_MOST_BYTES = 64 * 1024
#: A datagram takes somewhat more. Without the names of changed files, any may have changed.
_MOST_ASKED_BYTES = 100 * 1024
_count = 0


def ask_to_reload(
    loop: Loop, channel: Channel, paths: Optional[List[str]], answer: Callable[[Value], object], refuse: Callable[[Wrong], object]
) -> None:
    """Answers once the app was loaded, or could not be: `{state, path, error, trace, durationMs}`. `paths` are the changed files; None:
    any."""
    global _count
    _count += 1
    door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    door.setblocking(False)
    try:
        door.bind('\0longshore-asks-%s-%d-%d' % (os.environ.get('CONTAINER_ID', ''), os.getpid(), _count))
        door.connect(name_of(os.environ.get('CONTAINER_ID', '')))
        asked = json.dumps({} if paths is None else {'paths': paths}).encode('ascii')
        door.send(asked if len(asked) <= _MOST_ASKED_BYTES else b'{}')
    except OSError:
        door.close()
        refuse(Wrong('bad_request', 'this container is not one of a development server, so nothing was loaded anew'))
        return

    def over() -> None:
        timer.cancel()
        loop.forget(door.fileno())
        door.close()

    def on_answer(_events: int) -> None:
        try:
            value = json.loads(door.recv(_MOST_BYTES))
        except BlockingIOError:
            return
        except (OSError, ValueError):
            value = {'error': 'the development server ended', 'trace': '', 'durationMs': 0}
        over()
        if not channel.ended:
            state = 'unchanged' if value.pop('unchanged', False) else 'failed' if value.get('error') else 'loaded'
            answer(dict(value, state=state))

    def late() -> None:
        over()
        if not channel.ended:
            answer({'state': 'loading', 'error': '', 'trace': '', 'durationMs': int(_WAIT_SECONDS * 1000)})

    timer = loop.later(_WAIT_SECONDS, late)
    loop.watch(door.fileno(), READ, on_answer)
