"""One call of an ASGI application: its scope, and the states of a response and of a WebSocket."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import socket
import time
import unittest
from typing import Any, Awaitable, Callable, Dict, List, Tuple
from unittest import mock

from longshore import DefinitionError, asgi, realtime
from longshore.runner import protocol
from longshore.runner.asgi import is_asgi_app
from longshore.runner.asgi_calls import ClientGone, HttpCall, WebSocketCall, cut_reason, scope_of
from longshore.runner.call import Application, ResultError
from longshore.runner.protocol import FrameCutter, pack
from longshore.runner.realtime import RealtimeApp
from longshore.runner.settings import Settings
from longshore.runner.streams import Stream

Frame = Tuple[int, Dict[str, Any], bytes]
App = Callable[[Any, Any, Any], Awaitable[None]]

HTTP: Dict[str, Any] = {'type': 'http', 'method': 'get', 'path': '/', 'headers': [], 'client': None, 'server': ['x', 80]}
SOCKET: Dict[str, Any] = dict(HTTP, type='websocket', subprotocols=['a'])
END: Frame = (protocol.END, {}, b'')
START = {'type': 'http.response.start', 'status': 200}
BODY = {'type': 'http.response.body', 'body': b'x'}


async def _connected() -> Tuple[Stream, asyncio.StreamReader, asyncio.StreamWriter]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    stream = Stream()
    await asyncio.get_event_loop().create_unix_connection(lambda: stream, sock=ours)
    return (stream, *await asyncio.open_unix_connection(sock=theirs))


async def _drive(app: App, head: Dict[str, Any], frames: List[Frame]) -> Tuple[Dict[str, int], List[Frame]]:
    stream, reader, writer = await _connected()
    for frame in frames:
        writer.write(pack(*frame))
    call = (WebSocketCall if head['type'] == 'websocket' else HttpCall)(stream, head, {'one': 1})
    try:
        await app(call.scope, call.receive, call.send)
        result = call.result()
    finally:
        await call.finish(None)
    cutter, seen = FrameCutter(), []
    while True:
        data = await reader.read(65536)
        if not data:
            break
        seen += cutter.feed(data)
    writer.close()
    return result, seen


async def _lingering() -> Tuple[bool, bool]:
    """Whether a call whose input was not read waits for its caller's end, and whether anything waits behind that end."""
    stream, _reader, writer = await _connected()
    await stream.finish(protocol.END)
    waits = stream._late is not None
    writer.close()
    until = time.monotonic() + 5
    while stream._late is not None and time.monotonic() < until:
        await asyncio.sleep(0.001)
    return waits, stream._late is not None


def drive(app: App, head: Dict[str, Any], *frames: Frame) -> Tuple[Dict[str, int], List[Frame]]:
    """Runs a call of an application whose caller has sent these frames; gives its result and its frames."""
    return asyncio.run(asyncio.wait_for(_drive(app, head, list(frames)), 20))


def sends(*messages: Dict[str, Any]) -> App:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    return app


class Scope(unittest.TestCase):
    def test_paths_are_decoded_as_utf8_or_as_latin_1(self) -> None:
        for raw, path in (
            ('/a', '/a'),
            ('/a%20b%2Fc', '/a b/c'),
            ('/%C3%A4', '/ä'),
            ('/%e4', '/ä'),
            ('/100%', '/100%'),
            ('/%zz%4', '/%zz%4'),
            ('/%+1', '/%+1'),
        ):
            with self.subTest(raw):
                scope = scope_of(dict(HTTP, path=raw), None)
                self.assertEqual((scope['path'], scope['raw_path']), (path, raw.encode()))

    def test_a_request_without_optional_fields_has_defaults(self) -> None:
        scope = scope_of({'type': 'http', 'path': '/'}, None)
        self.assertEqual((scope['method'], scope['scheme'], scope['http_version']), ('GET', 'http', '1.1'))
        self.assertEqual((scope['headers'], scope['client'], scope['server'], scope['state']), ([], None, None, {}))
        self.assertEqual(scope['extensions'], {'http.response.trailers': {}})

    def test_a_websocket_has_its_own_fields(self) -> None:
        scope = scope_of(SOCKET, {'a': 1})
        self.assertEqual((scope['scheme'], scope['subprotocols'], scope['state']), ('ws', ['a'], {'a': 1}))
        self.assertEqual((scope['asgi']['spec_version'], scope['extensions']), ('2.4', {'websocket.http.response': {}}))
        self.assertNotIn('method', scope)

    def test_the_state_is_a_copy(self) -> None:
        state = {'a': 1}
        scope_of(HTTP, state)['state']['a'] = 2
        self.assertEqual(state, {'a': 1})


class Shape(unittest.TestCase):
    def test_an_application_takes_scope_receive_and_send(self) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None: ...

        async def more(extra: Any, scope: Any, receive: Any, send: Any) -> None: ...

        async def passes(*args: Any) -> None: ...

        def factory(context: Any) -> Any: ...

        async def late(context: Any, option: int = 1) -> Any: ...

        class Called:
            async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

            def make(self) -> Any: ...

        for found in (app, functools.partial(more, 1), passes, Called(), Called().__call__):
            with self.subTest(found=found):
                self.assertTrue(is_asgi_app(found))
        for found in (factory, late, Called, Called().make, lambda: None):
            with self.subTest(found=found):
                self.assertFalse(is_asgi_app(found))


class Response(unittest.TestCase):
    def test_head_body_and_end_of_a_small_answer_are_frames_of_one_write(self) -> None:
        with mock.patch.object(Stream, 'write', autospec=True, side_effect=Stream.write) as write:
            result, frames = drive(sends(START, BODY), HTTP, END)
        self.assertEqual((result, [frame[0] for frame in frames]), ({'status': 200}, [protocol.RESPONSE, protocol.DATA, protocol.END]))
        self.assertEqual(write.call_count, 1)

    def test_messages_out_of_order_are_refused(self) -> None:
        for messages, said in (
            ([BODY], "expected ASGI message 'http.response.start', but got 'http.response.body'"),
            ([START, START], "expected ASGI message 'http.response.body'"),
            ([START, BODY, BODY], "unexpected ASGI message 'http.response.body': the response is complete"),
            ([START, {'type': 'http.response.trailers'}], "expected ASGI message 'http.response.body'"),
            ([dict(START, trailers=True), BODY, BODY], "expected ASGI message 'http.response.trailers'"),
        ):
            with self.subTest(said), self.assertRaisesRegex(RuntimeError, said):
                drive(sends(*messages), HTTP, END)

    def test_values_of_the_wrong_kind_are_named(self) -> None:
        for message, kind, said in (
            (dict(START, status='200'), ValueError, "status of a response must be a number from 100 to 999, not '200'"),
            (dict(START, status=1000), ValueError, 'not 1000'),
            (dict(START, headers=[('a', b'b')]), TypeError, "must be bytes, not 'a'"),
        ):
            with self.subTest(said), self.assertRaisesRegex(kind, said):
                drive(sends(message), HTTP, END)
        with self.assertRaisesRegex(TypeError, 'a body or a message must be bytes, not str'):
            drive(sends(START, dict(BODY, body='y')), HTTP, END)

    def test_an_answer_that_is_not_complete_is_no_result(self) -> None:
        with self.assertRaisesRegex(ResultError, 'without a response'):
            drive(sends(), HTTP, END)
        with self.assertRaisesRegex(ResultError, 'before the end'):
            drive(sends(START), HTTP, END)

    def test_status_and_body_are_passed_on_whatever_they_are(self) -> None:
        for status in (103, 204, 304, 599):
            result, frames = drive(sends(dict(START, status=status), dict(BODY, body=bytearray(b'y'))), dict(HTTP, method='HEAD'), END)
            self.assertEqual((result, json.loads(frames[0][2])['status'], frames[1][2]), ({'status': status}, status, b'y'))

    def test_a_body_arrives_in_pieces_and_then_the_disconnect(self) -> None:
        seen: List[Any] = []

        async def app(_scope: Any, receive: Any, send: Any) -> None:
            for _ in range(3):
                seen.append(await receive())
            for message in (START, BODY):
                await send(message)
            seen.append(await receive())

        drive(app, HTTP, (protocol.DATA, {}, b'a'), (99, {}, b'?'), (protocol.DATA, {}, b'b'), (protocol.DATA, {}, b'c'), END)
        self.assertEqual([message.get('body') for message in seen], [b'a', b'b', b'c', None])
        self.assertEqual([message.get('more_body') for message in seen], [True, True, False, None])
        self.assertEqual(seen[3], {'type': 'http.disconnect'})


    def test_a_call_whose_input_was_not_read_is_not_kept_behind_its_callers_end(self) -> None:
        self.assertEqual(asyncio.run(asyncio.wait_for(_lingering(), 20)), (True, False))


class WebSocket(unittest.TestCase):
    accept = {'type': 'websocket.accept'}
    text = {'type': 'websocket.send', 'text': 'x'}
    close = {'type': 'websocket.close'}

    def test_messages_out_of_order_are_refused(self) -> None:
        for messages, said in (
            ([self.text], "unexpected ASGI message 'websocket.send' before the WebSocket is accepted"),
            ([self.accept, self.accept], "expected ASGI message 'websocket.send' or 'websocket.close'"),
            ([self.accept, self.close, self.text], "unexpected ASGI message 'websocket.send': the WebSocket is closed"),
            ([self.close, self.accept], "unexpected ASGI message 'websocket.accept'"),
            ([{'type': 'websocket.http.response.body'}], "expected ASGI message 'websocket.http.response.start'"),
        ):
            with self.subTest(said), self.assertRaisesRegex(RuntimeError, said):
                drive(sends(*messages), SOCKET)

    def test_sending_to_one_who_has_left_raises_and_closing_does_not(self) -> None:
        async def app(_scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await send(self.accept)
            self.assertEqual(await receive(), {'type': 'websocket.disconnect', 'code': 1001, 'reason': 'bye'})
            with self.assertRaises(ClientGone):
                await send(self.text)
            await send(self.close)

        result, frames = drive(app, SOCKET, (protocol.CLOSE, {'code': 1001, 'reason': 'bye'}, b''))
        self.assertEqual((result, [frame[0] for frame in frames]), ({'code': 1001}, [protocol.RESPONSE]))

    def test_messages_of_several_coroutines_do_not_mix(self) -> None:
        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            await send(self.accept)
            whole = [send({'type': 'websocket.send', 'bytes': bytes([number]) * 600_000}) for number in range(3)]
            await asyncio.gather(*whole)

        async def read() -> None:
            ours, theirs = socket.socketpair()
            stream = Stream()
            for one in (ours, theirs):
                one.setblocking(False)
            await asyncio.get_event_loop().create_unix_connection(lambda: stream, sock=ours)
            reader, writer = await asyncio.open_unix_connection(sock=theirs)
            call = WebSocketCall(stream, SOCKET, None)
            running = asyncio.ensure_future(app(call.scope, call.receive, call.send))
            cutter, messages, parts = FrameCutter(), [], b''
            while len(messages) < 3:
                for _kind, header, body in cutter.feed(await reader.read(65536))[0:]:
                    if _kind == protocol.MESSAGE:
                        parts += body
                        if not header.get('more'):
                            messages.append(parts)
                            parts = b''
            await running
            stream.abort()
            writer.close()
            self.assertEqual(messages, [bytes([number]) * 600_000 for number in range(3)])

        asyncio.run(asyncio.wait_for(read(), 20))

    def test_a_reason_has_at_most_123_bytes(self) -> None:
        self.assertEqual(cut_reason('ü' * 100), 'ü' * 61)
        self.assertEqual(cut_reason('short'), 'short')

    def test_realtime_takes_the_message_under_any_name(self) -> None:
        def named(context: Any, event: str) -> str:
            return '%s %s' % (event, context.stub_id)

        def keywords(**given: Any) -> Any:
            return given

        def positional(*given: Any) -> Any:
            return given

        for function, answer in ((named, b'hi s'), (keywords, None), (positional, b'["hi"]'), (lambda: 1, None)):
            with self.subTest(function=function):
                app = RealtimeApp(Application(realtime(function), Settings({'STUB_ID': 's', 'STUB_TYPE': 'asgi/deployment'})))
                message: Frame = (protocol.MESSAGE, {'text': True}, b'hi')
                if answer is None:
                    with self.assertRaises(TypeError):
                        drive(app, SOCKET, message, (protocol.CLOSE, {'code': 1000}, b''))
                else:
                    asked = drive(self.patient(app), SOCKET, message)
                    self.assertEqual([frame[2] for frame in asked[1] if frame[0] == protocol.MESSAGE], [answer])

    @staticmethod
    def patient(app: App) -> App:
        """Leaves the application after its first answer."""

        async def passing(scope: Any, receive: Any, send: Any) -> None:
            async def passed(message: Any) -> None:
                await send(message)
                if message['type'] == 'websocket.send':
                    raise ClientGone

            try:
                await app(scope, receive, passed)
            except ClientGone:
                pass

        return passing


class Starlette(unittest.TestCase):
    def test_serves_requests_and_websockets(self) -> None:
        from starlette.applications import Starlette as Site  # type: ignore[import-not-found,unused-ignore]
        from starlette.responses import PlainTextResponse  # type: ignore[import-not-found,unused-ignore]
        from starlette.routing import Route, WebSocketRoute  # type: ignore[import-not-found,unused-ignore]

        async def size(request: Any) -> Any:
            return PlainTextResponse('%d %s' % (len(await request.body()), request.state.one))

        async def echo(websocket: Any) -> None:
            await websocket.accept()
            await websocket.send_text('got ' + await websocket.receive_text())
            await websocket.close(4000)

        site = Site(routes=[Route('/size', size, methods=['POST']), WebSocketRoute('/echo', echo)])
        result, frames = drive(site, dict(HTTP, method='POST', path='/x/size', rootPath='/x'), (protocol.DATA, {}, bytes(9)), END)
        self.assertEqual((result, frames[1][2]), ({'status': 200}, b'9 1'))
        result, frames = drive(site, dict(SOCKET, path='/echo'), (protocol.MESSAGE, {'text': True}, b'hi'))
        self.assertEqual((result, frames[1][2]), ({'code': 4000}, b'got hi'))


class Decorators(unittest.TestCase):
    def setUp(self) -> None:
        environ = {name: value for name, value in os.environ.items() if name != 'CONTAINER_ID'}
        patch = mock.patch.dict(os.environ, environ, clear=True)
        patch.start()
        self.addCleanup(patch.stop)

    def test_describe_a_stub_of_the_kind_asgi(self) -> None:
        for one in (asgi, realtime):

            def site() -> None: ...

            described = one(concurrent_requests=7)(site).described('app:site', '')
            wanted = {'stubType': 'asgi/deployment', 'name': 'site', 'concurrentRequests': 7, 'timeout': 180, 'retries': 0}
            self.assertEqual({name: described[name] for name in wanted}, wanted)

    def test_an_application_object_needs_a_name_and_keeps_its_attributes(self) -> None:
        class Site:
            def __init__(self) -> None:
                self.options = 'its own'

            async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

        site = Site()
        with self.assertRaisesRegex(DefinitionError, '^name: '):
            asgi(site)
        found = asgi(name='x')(site)
        self.assertEqual((found.options['name'], found.__module__, site.options), ('x', __name__, 'its own'))

    def test_threads_are_refused(self) -> None:
        with self.assertRaisesRegex(DefinitionError, "^worker_mode: must be 'fork' or 'spawn'"):
            asgi(worker_mode='thread')
