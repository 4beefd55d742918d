"""`Map`, `Queue` and `Signal`: values that handlers and programs of a workspace share. Loaded at their first use.

Values that are JSON travel as JSON, others pickled (`values`). A container reads pickled values of its own app, and
those of tokens of the workspace; the scheduler refuses others.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple
from urllib import parse

from .client import GatewayError, exchange, workspace_of
from .values import decoded, encoded

_JSON = 'application/json'
#: Pause between two looks at a signal.
_LOOK_SECONDS = 2.0
#: The scheduler takes no longer values.
_MOST_CHARACTERS = 1_000_000


class Map:
    """
    A mapping that handlers and programs share by its name. Keys are texts of up to 500 characters, values of up to a
    million characters as they are sent. An entry lives for seven days after it was set, or for `ttl` seconds.

        seen = Map(name='seen')
        seen['a'] = {'count': 1}
        print(seen['a'], seen['b'])   # {'count': 1} None

    `map[key]` of a missing key is None, and `del map[key]` raises KeyError. JSON values travel as JSON, others pickled.

    name: 1 to 200 characters, else ValueError. All of the workspace share the map of a name.

    Methods raise GatewayError when the installation refuses or does not answer. A key that is no text raises TypeError, and
    one that has not 1 to 500 characters KeyError.
    """

    def __init__(self, *, name: str) -> None:
        self.name = _named('map', name)

    def __repr__(self) -> str:
        return 'Map(name=%r)' % self.name

    def set(self, key: str, value: Any, ttl: int = 604_800) -> bool:
        """Sets a key. ttl: seconds for which it stays, 1 to 604,800. Raises GatewayError, also where the workspace has
        no room. Returns True."""
        what = 'cannot set %r of map %s' % (_key(key), self.name)
        encoding, text = _sent(what, value)
        body = {'name': self.name, 'key': key, 'encoding': encoding, 'value': text, 'ttl_seconds': ttl}
        _asked('PUT', 'map', '/entry', what, body)
        return True

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        found = self._entry(key)
        return default if found is None else decoded(found['encoding'], found['value'])

    def delete(self, key: str) -> bool:
        """Deletes a key. True: the map had it."""
        what = 'cannot delete %r of map %s' % (_key(key), self.name)
        return _asked('DELETE', 'map', '/entry', what, None, name=self.name, key=key) is not None

    def keys(self) -> Iterator[str]:
        """All keys, in their order."""
        after = ''
        while True:
            page = self._keys(after, 1000)
            yield from page['data']
            after = page['next']
            if not after:
                return

    def items(self) -> Iterator[Tuple[str, Any]]:
        """All keys with their values; a key that goes meanwhile is left out."""
        for key in self.keys():
            found = self._entry(key)
            if found is not None:
                yield key, decoded(found['encoding'], found['value'])

    def values(self) -> Iterator[Any]:
        """All values, in the order of their keys."""
        for _, value in self.items():
            yield value

    def __getitem__(self, key: str) -> Any:
        """The value of a key; None where there is none, as published apps expect."""
        return self.get(key)

    def __setitem__(self, key: str, value: Any) -> None:
        self.set(key, value)

    def __delitem__(self, key: str) -> None:
        if not self.delete(key):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._entry(key) is not None

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def __len__(self) -> int:
        return int(self._keys('', 1)['count'])

    def __bool__(self) -> bool:
        return True

    def _entry(self, key: str) -> Optional[Dict[str, Any]]:
        what = 'cannot read %r of map %s' % (_key(key), self.name)
        return _asked('GET', 'map', '/entry', what, None, name=self.name, key=key)

    def _keys(self, after: str, limit: int) -> Dict[str, Any]:
        what = 'cannot read the keys of map %s' % self.name
        return _found(what, _asked('GET', 'map', '/keys', what, None, name=self.name, after=after, limit=str(limit)))


class Queue:
    """
    A queue that handlers and programs share by its name: what is put first is taken first. An item lives for seven
    days. Taking an item deletes it: where the taker dies, the item is lost, unlike a task of a `task_queue`.

    name: 1 to 200 characters, else ValueError. All of the workspace share the queue of a name.
    max_size: items above which `put` is refused; None: as many as the workspace has room for.

    Values are as a `Map`'s. Methods raise GatewayError when the installation refuses or does not answer.
    """

    def __init__(self, *, name: str, max_size: Optional[int] = None) -> None:
        self.name = _named('queue', name)
        self.max_size = max_size

    def __repr__(self) -> str:
        return 'Queue(name=%r%s)' % (self.name, '' if self.max_size is None else ', max_size=%r' % self.max_size)

    def put(self, value: Any) -> bool:
        """Adds a value at the end. Raises GatewayError, also where the queue has `max_size` items, or the workspace no
        room. Returns True."""
        what = 'cannot put into queue %s' % self.name
        encoding, text = _sent(what, value)
        body = {'name': self.name, 'encoding': encoding, 'value': text, 'max_size': self.max_size}
        _asked('POST', 'queue', '', what, body)
        return True

    def pop(self) -> Any:
        """Takes the oldest value; None where the queue is empty."""
        what = 'cannot take from queue %s' % self.name
        item = _found(what, _asked('POST', 'queue', '/pop', what, {'name': self.name})).get('item')
        return None if item is None else decoded(item['encoding'], item['value'])

    def peek(self) -> Any:
        """The oldest value, which stays; None where the queue is empty."""
        item = self._state()['first']
        return None if item is None else decoded(item['encoding'], item['value'])

    def empty(self) -> bool:
        """Whether the queue has no item."""
        return len(self) == 0

    def __len__(self) -> int:
        return int(self._state()['size'])

    def __bool__(self) -> bool:
        return True

    def _state(self) -> Dict[str, Any]:
        what = 'cannot read queue %s' % self.name
        return _found(what, _asked('GET', 'queue', '', what, None, name=self.name))


class Signal:
    """
    A flag by its name that tells running containers to do something, such as to load a model anew. In a container the
    `handler` is called each time that the signal is set, in a thread, within some seconds.

    name: 1 to 200 characters, else ValueError. All of the workspace share the signal of a name.
    handler: called without arguments in each process of a container; elsewhere never. Its errors are in the logs.
    clear_after_interval: seconds after the handler's return, when it clears the signal; None, 0 or negative: it stays.

    Methods raise GatewayError when the installation refuses or does not answer.
    """

    def __init__(
        self, *, name: str, handler: Optional[Callable[[], Any]] = None, clear_after_interval: Optional[int] = -1
    ) -> None:
        self.name = _named('signal', name)
        self.handler = handler
        self.clear_after_interval = clear_after_interval
        if handler is not None and os.environ.get('CONTAINER_ID'):
            _watched.append(self)
            if _watching:
                _start()

    def __repr__(self) -> str:
        return 'Signal(name=%r)' % self.name

    def set(self, ttl: Optional[int] = 600) -> bool:
        """Sets the signal, set or not. ttl: seconds for which it stays, 1 to 604,800; None: 600. Returns True."""
        _asked('PUT', 'signal', '', 'cannot set signal %s' % self.name, {'name': self.name, 'ttl_seconds': ttl})
        return True

    def clear(self) -> bool:
        """Clears the signal, set or not. Returns True."""
        _asked('DELETE', 'signal', '', 'cannot clear signal %s' % self.name, None, name=self.name)
        return True

    def is_set(self) -> bool:
        """Whether the signal is set, and not older than its `ttl`."""
        return self._revision() != 0

    def _revision(self) -> int:
        what = 'cannot read signal %s' % self.name
        found = _found(what, _asked('GET', 'signal', '', what, None, name=self.name))
        return int(found['revision']) if found['set'] else 0

    def _look(self, seen: int) -> int:
        """Calls the handler if the signal was set since. Returns the number of the setting seen last."""
        try:
            revision = self._revision()
        except GatewayError:
            return seen  # the next look may be answered
        if revision == 0 or revision == seen:
            return revision or seen
        print('signal %s is set' % self.name)
        try:
            if self.handler is not None:
                self.handler()
        except Exception:
            import traceback

            traceback.print_exc()
        if self.clear_after_interval is not None and self.clear_after_interval > 0:
            time.sleep(self.clear_after_interval)
            try:
                self.clear()
            except GatewayError:
                pass
        return revision


#: Signals of this process with a handler.
_watched: List[Signal] = []
#: Whether this process serves, so that signals are looked at.
_watching = False
_thread_of = 0


def watch() -> None:
    """Looks at the signals of this process from now on. The runner calls it in each process that serves, because a
    thread before a fork would be missing after it."""
    global _watching
    _watching = True
    if _watched:
        _start()


def _start() -> None:
    global _thread_of
    if _thread_of == os.getpid():
        return
    _thread_of = os.getpid()
    threading.Thread(target=_watch, name='longshore-signals', daemon=True).start()


def _watch() -> None:
    seen: Dict[int, int] = {}
    while True:
        for at, signal in enumerate(list(_watched)):
            seen[at] = signal._look(seen.get(at, 0))
            if os.getpid() != _thread_of:
                os._exit(0)  # the handler of a signal forked, and this is the child
        time.sleep(_LOOK_SECONDS)


def _asked(
    method: str, kind: str, path: str, what: str, body: Optional[Dict[str, Any]], **query: str
) -> Optional[Dict[str, Any]]:
    """The answer; None: there is nothing of that name or key."""
    url = '/api/v1/%s/%s%s' % (kind, workspace_of(what), path)
    if query:
        url += '?' + parse.urlencode({name: value for name, value in query.items() if value})
    sent = None if body is None else json.dumps({name: value for name, value in body.items() if value is not None})
    status, data = exchange(method, url, what, None if sent is None else sent.encode('utf-8'), _JSON)
    if status == 404:
        return None
    return dict(json.loads(data.decode('utf-8'))) if data else {}


def _found(what: str, answer: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    if answer is None:
        raise GatewayError('%s: the scheduler does not know it' % what, 404)
    return answer


def _named(kind: str, name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise ValueError('name: a %s has a name of 1 to 200 characters, not %r' % (kind, name))
    return name


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError('a key is a text, not %r: str(…) makes one' % (key,))
    if not 0 < len(key) <= 500:
        raise KeyError('a key has 1 to 500 characters, not %d' % len(key))
    return key


def _sent(what: str, value: Any) -> Tuple[str, str]:
    """The value as it is sent."""
    encoding, text = encoded(value)
    if len(text) > _MOST_CHARACTERS:
        said = 'the value has {:,} characters as it is sent, and may have {:,}'.format(len(text), _MOST_CHARACTERS)
        raise GatewayError('%s: %s' % (what, said), 400)
    return encoding, text
