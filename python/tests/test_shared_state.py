"""`Map`, `Queue` and `Signal` against a small real HTTP server that plays an installation."""

from __future__ import annotations

import json
import os
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Dict, List, Tuple
from unittest import mock
from urllib import parse

import beam
import longshore
from longshore import GatewayError, Map, Queue, Signal, shared_state
from longshore.experimental import Signal as ExperimentalSignal


class Server(HTTPServer):
    def __init__(self) -> None:
        super().__init__(('127.0.0.1', 0), Handler)
        self.map: Dict[Tuple[str, str], Any] = {}
        self.queue: List[Any] = []
        self.signals: Dict[str, int] = {}
        self.sets = 0
        self.seen: List[Tuple[str, str, Any]] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        parts = parse.urlsplit(self.path)
        query = dict(parse.parse_qsl(parts.query))
        data = self.rfile.read(int(self.headers['Content-Length'] or 0))
        body = json.loads(data) if data else {}
        self.server.seen.append((self.command, self.path, body))
        answer = self.answer('%s %s' % (self.command, parts.path), query, body)
        status, value = answer if isinstance(answer, tuple) else (200, answer)
        out = b'' if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header('Content-Length', str(len(out)))
        self.end_headers()
        self.wfile.write(out)

    do_PUT = do_POST = do_DELETE = do_GET

    def answer(self, line: str, query: Dict[str, str], body: Dict[str, Any]) -> Any:
        server = self.server
        place = (query.get('name') or body.get('name') or '', query.get('key') or body.get('key') or '')
        missing = 404, {'message': 'the map has no such key'}
        if line == 'GET /api/v1/workspace/current':
            return {'external_id': 'w'}
        if line == 'PUT /api/v1/map/w/entry':
            if len(server.map) > 4:
                return 429, {'message': 'full'}
            server.map[place] = {'key': place[1], 'encoding': body['encoding'], 'value': body['value']}
            return None
        if line == 'GET /api/v1/map/w/entry':
            return server.map.get(place, missing)
        if line == 'DELETE /api/v1/map/w/entry':
            return missing if server.map.pop(place, None) is None else None
        if line == 'GET /api/v1/map/w/keys':
            keys = sorted(key for name, key in server.map if name == place[0])
            page = [key for key in keys if key > query.get('after', '')][:2]
            return {'data': page, 'next': page[-1] if len(page) == 2 else '', 'count': len(keys)}
        if line == 'POST /api/v1/queue/w':
            server.queue.append(body)
            return None
        if line == 'POST /api/v1/queue/w/pop':
            return {'item': server.queue.pop(0) if server.queue else None}
        if line == 'GET /api/v1/queue/w':
            return {'size': len(server.queue), 'first': server.queue[0] if server.queue else None}
        if line == 'PUT /api/v1/signal/w':
            server.sets += 1
            server.signals[place[0]] = server.sets
            return None
        if line == 'DELETE /api/v1/signal/w':
            server.signals.pop(place[0], None)
            return None
        if line == 'GET /api/v1/signal/w':
            return {'set': place[0] in server.signals, 'revision': server.signals.get(place[0], 0)}
        return 500, {'message': line}

    def log_message(self, *_given: Any) -> None:
        pass


class SharedState(unittest.TestCase):
    def setUp(self) -> None:
        self.server = Server()
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        url = 'http://127.0.0.1:%d' % self.server.server_address[1]
        patched = mock.patch.dict(os.environ, {'LONGSHORE_URL': url, 'LONGSHORE_TOKEN': 't'}, clear=True)
        patched.start()
        self.addCleanup(patched.stop)

    def test_a_map_is_like_a_dictionary(self) -> None:
        found = Map(name='m')
        found['a'] = {'n': 1}
        found['b/ä'] = b'bytes'
        self.assertEqual((found['a'], found['b/ä'], found['c'], found.get('c', 5)), ({'n': 1}, b'bytes', None, 5))
        self.assertEqual((len(found), 'a' in found, 'c' in found, bool(Map(name='none'))), (2, True, False, True))
        found.set('c', [1], ttl=60)
        self.assertEqual(self.server.seen[-1][2]['ttl_seconds'], 60)
        self.assertEqual(list(found), ['a', 'b/ä', 'c'])
        self.assertEqual(dict(found.items()), {'a': {'n': 1}, 'b/ä': b'bytes', 'c': [1]})
        self.assertEqual(list(found.values()), [{'n': 1}, b'bytes', [1]])
        del found['a']
        with self.assertRaises(KeyError):
            del found['a']
        self.assertFalse(found.delete('a'))

    def test_a_name_is_a_keyword_as_in_published_modules(self) -> None:
        for made in (Map, Queue, Signal, beam.Map, beam.Queue):
            with self.assertRaisesRegex(TypeError, 'positional argument'):
                made('x')  # type: ignore[misc]

    def test_json_is_not_pickled(self) -> None:
        Map(name='m')['a'] = {'n': 1}
        self.assertEqual(self.server.map[('m', 'a')], {'key': 'a', 'encoding': 'json', 'value': '{"n":1}'})

    def test_a_full_workspace_and_odd_names_are_said(self) -> None:
        found = Map(name='m')
        for number in range(5):
            found[str(number)] = number
        with self.assertRaisesRegex(GatewayError, "cannot set '9' of map m: full"):
            found['9'] = 9
        for key in ('', 'x' * 501):
            with self.assertRaisesRegex(KeyError, 'a key has 1 to 500 characters, not %d' % len(key)):
                found[key] = 1
        ways: List[Any] = [
            lambda key: found.set(key, 1), lambda key: found[key], found.get, found.delete, lambda key: found.__delitem__(key)
        ]  # fmt: skip
        for wrong in (5, None, b'x', (1, 2)):
            for way in ways:
                with self.assertRaisesRegex(TypeError, 'a key is a text, not '):
                    way(wrong)
        self.assertEqual((repr(found), repr(Queue(name='q')), repr(Queue(name='q', max_size=9))), ("Map(name='m')", "Queue(name='q')", "Queue(name='q', max_size=9)"))
        said = 'the value has 1,000,003 characters as it is sent, and may have 1,000,000$'
        for put in (lambda: found.set('a', 'x' * 1_000_001), lambda: Queue(name='q').put('x' * 1_000_001)):
            with self.assertRaisesRegex(GatewayError, said):
                put()
        with self.assertRaises(ValueError):
            Map(name='')

    def test_a_queue_gives_first_what_came_first(self) -> None:
        queue = Queue(name='q', max_size=9)
        self.assertEqual((queue.pop(), queue.peek(), queue.empty(), len(queue)), (None, None, True, 0))
        self.assertTrue(queue.put([1]) and queue.put({2}))
        self.assertEqual(self.server.queue[0]['max_size'], 9)
        self.assertEqual((len(queue), queue.peek(), queue.empty()), (2, [1], False))
        self.assertEqual((queue.pop(), queue.pop(), queue.pop()), ([1], {2}, None))

    def test_a_signal_calls_its_handler_each_time_that_it_is_set(self) -> None:
        called = threading.Semaphore(0)

        def fails() -> None:
            called.release()
            raise RuntimeError('the next time it is called again')

        with mock.patch.dict(os.environ, {'CONTAINER_ID': 'c'}), mock.patch.multiple(
            shared_state, _watched=[], _watching=False, _thread_of=0, _LOOK_SECONDS=0.01
        ):
            signal = Signal(name='s', handler=fails)
            self.assertFalse(any(one.name == 'longshore-signals' for one in threading.enumerate()))
            shared_state.watch()
            for _ in range(2):
                Signal(name='s').set(ttl=5)
                self.assertTrue(called.acquire(timeout=5))
            time.sleep(0.1)
            self.assertFalse(called.acquire(blocking=False), 'a setting calls it once')
            self.assertTrue(signal.is_set() and signal.clear())
            self.assertFalse(signal.is_set())

    def test_on_a_machine_a_signal_watches_nothing(self) -> None:
        with mock.patch.multiple(shared_state, _watched=[], _watching=False):
            Signal(name='s', handler=print)
            self.assertEqual(shared_state._watched, [])

    def test_the_shims_have_them(self) -> None:
        self.assertIs(beam.Map, longshore.Map)
        self.assertIs(beam.Queue, longshore.Queue)
        self.assertIs(ExperimentalSignal, Signal)


if __name__ == '__main__':
    unittest.main()
