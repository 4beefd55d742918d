"""Handlers: how they are found, and their inputs, results and exceptions."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import pickle
import shutil
import sys
import tempfile
import types
import unittest
from typing import Any, Callable, List, Tuple

import beta9
from longshore import endpoint, function, schedule, task_queue
from longshore.runner import logs, thread_tasks
from longshore.runner.call import Application, ResultError, encode_result, load, run_async, run_sync
from longshore.runner.connection import MAX_LINE_BYTES
from longshore.runner.settings import Settings, SettingsError, split_reference
from longshore.runner.task import Task


def application(function: Callable[..., Any], **environ: str) -> Application:
    return Application(function, Settings(environ))


def call(function: Callable[..., Any], body: bytes = b'', **environ: str) -> Any:
    task = Task('task-1', 'token', None, 0)
    task.body = body
    task.sink = Lines()
    outcome, answer = run_sync(application(function, **environ), task, lambda _task, _item: None)
    return outcome, json.loads(answer), task.sink.lines


def items(function: Any, **environ: str) -> Tuple[List[bytes], bytes]:
    """Frames that a generator's call sends while it runs, and its result."""
    task = Task('task-1', 'token', None, 0)
    task.sink = Lines()
    sent: List[bytes] = []
    found = application(function, **environ)
    keep: Any = lambda _task, item: sent.append(item)
    outcome, body = asyncio.run(run_async(found, task, keep)) if found.is_async else run_sync(found, task, keep)
    assert outcome == 'ok', (outcome, body)
    return sent, body


class Lines:
    """Collects log lines in these tests."""

    def __init__(self) -> None:
        self.lines: List[str] = []

    def log(self, _task_id: str, stream: str, line: bytes) -> None:
        self.lines.append('%s %s' % (stream, line.decode()))


class Shape(unittest.TestCase):
    def test_asynchronous_handlers_and_those_with_a_context_are_recognised(self) -> None:
        async def coroutine() -> None: ...

        async def generator() -> Any:
            yield 1

        def plain(context: Any, b: int) -> None: ...

        def keyword(*, context: Any) -> None: ...

        def without(other: int) -> None:
            context = other
            del context

        @functools.wraps(plain)
        def wrapped(*args: Any, **kwargs: Any) -> None:
            plain(*args, **kwargs)

        class WithCall:
            async def __call__(self, context: Any) -> None: ...

        cases: List[Tuple[Any, bool, bool]] = [
            (coroutine, True, False),
            (generator, True, False),
            (plain, False, True),
            (keyword, False, True),
            (without, False, False),
            (wrapped, False, True),
            (functools.partial(plain, b=1), False, True),
            (WithCall(), True, True),
            (len, False, False),
        ]
        for function, is_async, wants_context in cases:
            with self.subTest(function=function):
                found = application(function)
                self.assertEqual((found.is_async, found.wants_context), (is_async, wants_context))


class CallbackUrl(unittest.TestCase):
    def test_a_handler_that_has_no_use_for_it_is_not_given_it(self) -> None:
        body = b'{"n": 1, "callback_url": "https://example.com/"}'

        def without(n: int) -> int:
            return n

        @functools.wraps(without)
        def wrapped(*args: Any, **kwargs: Any) -> int:
            return without(*args, **kwargs)

        for function in (without, wrapped):
            with self.subTest(function=function):
                self.assertEqual(call(function, body)[:2], ('ok', 1))

    def test_a_handler_that_takes_it_is(self) -> None:
        body = b'{"callback_url": "https://example.com/"}'

        def named(callback_url: str) -> str:
            return callback_url

        def any_keyword(**kwargs: str) -> str:
            return kwargs['callback_url']

        for function in (named, any_keyword):
            with self.subTest(function=function):
                self.assertEqual(call(function, body)[:2], ('ok', 'https://example.com/'))


class Loading(unittest.TestCase):
    def test_a_reference_is_module_and_function(self) -> None:
        self.assertEqual(split_reference('app:handler', 'HANDLER'), ('app', 'handler'))
        self.assertEqual(split_reference('pkg/app.py:handler', 'HANDLER'), ('pkg.app', 'handler'))
        for text in ('app', ':handler', 'app:', ''):
            with self.subTest(text=text), self.assertRaisesRegex(SettingsError, 'HANDLER must be module:function'):
                split_reference(text, 'HANDLER')

    def test_a_decorated_function_is_unwrapped(self) -> None:
        module = types.ModuleType('decorated_app')

        def handler() -> int:
            return 1

        module.handler = endpoint(handler)  # type: ignore[attr-defined]
        sys.modules['decorated_app'] = module
        self.addCleanup(sys.modules.pop, 'decorated_app')
        self.assertIs(application(load('decorated_app:handler', 'HANDLER')).function, handler)
        with self.assertRaisesRegex(SettingsError, 'decorated_app has no other'):
            load('decorated_app:other', 'HANDLER')


    def test_the_pickled_function_of_a_notebook_is_read_from_its_file(self) -> None:
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder)
        for name, written in (('add', pickle.dumps(os.path.basename)), ('data', pickle.dumps([1])), ('far', b'cno_library\nf\n.')):
            with open('%s.pkl' % name, 'wb') as file:
                file.write(written)
        self.assertIs(load('add.pkl:add', 'HANDLER'), os.path.basename)
        with self.assertRaisesRegex(SettingsError, 'data.pkl has a list, not a function'):
            load('data.pkl:data', 'HANDLER')
        with self.assertRaisesRegex(SettingsError, 'far.pkl needs the library no_library in its image'):
            load('far.pkl:far', 'HANDLER')


class Generators(unittest.TestCase):
    def test_items_are_events_as_they_come_and_objects_as_they_are(self) -> None:
        def plain() -> Any:
            yield {'word': 'a\nb'}
            yield 2

        async def asynchronous() -> Any:
            yield {'word': 'a\nb'}
            yield 2

        events = [b'data: {"word":"a\\nb"}\n\n', b'data: {"data":2}\n\n']
        for function in (plain, asynchronous):
            with self.subTest(function=function):
                self.assertEqual(items(function), (events, b''))
                self.assertEqual(items(function, STUB_TYPE='taskqueue/deployment'), ([], b'[{"word":"a\\nb"},2]'))


class Outcomes(unittest.TestCase):
    def test_a_value_is_its_json(self) -> None:
        self.assertEqual(call(lambda a, b=2: {'a': a, 'b': b}, b'{"a": [1]}'), ('ok', {'a': [1], 'b': 2}, []))

    def test_an_exception_is_type_and_message_with_the_traceback_in_the_log(self) -> None:
        def handler() -> None:
            raise KeyError('x')

        outcome, answer, lines = call(handler)
        self.assertEqual((outcome, answer), ('error', {'error': "KeyError: 'x'"}))
        self.assertEqual(lines[0], 'stderr Traceback (most recent call last):')
        self.assertIn('in handler', lines[1])
        self.assertEqual(lines[-1], "stderr KeyError: 'x'")
        _, answer, _ = call(handler, LONGSHORE_TRACEBACKS='1')
        self.assertRegex(answer['error'], r"^KeyError: 'x'\n\nTraceback")

    def test_an_exception_that_cannot_be_printed_is_still_answered(self) -> None:
        class Bad(Exception):
            def __str__(self) -> str:
                raise ValueError

        def handler() -> None:
            raise Bad

        self.assertEqual(call(handler)[:2], ('error', {'error': 'Bad'}))

    def test_tasks_are_tried_again_for_what_their_handlers_say(self) -> None:
        def handler(kind: str = '') -> float:
            if kind == 'nan':
                return float('nan')
            raise {'key': KeyError, 'lookup': LookupError, 'os': OSError}[kind]('no')

        any_error, lookups = task_queue(handler), task_queue(retry_for=[LookupError])(handler)
        cases: List[Tuple[Any, str, str, str]] = [
            (any_error, 'taskqueue/deployment', 'os', 'retry'),
            (any_error, 'taskqueue', 'key', 'retry'),
            (handler, 'taskqueue/deployment', 'os', 'retry'),
            (any_error, 'taskqueue/deployment', 'nan', 'error'),
            (lookups, 'taskqueue/deployment', 'key', 'retry'),
            (lookups, 'taskqueue/deployment', 'lookup', 'retry'),
            (lookups, 'taskqueue/deployment', 'os', 'error'),
            (endpoint(handler), 'endpoint/deployment', 'os', 'error'),
            (function(handler), 'function/deployment', 'os', 'retry'),
            (handler, 'function', 'os', 'retry'),
            (function(retry_for=[LookupError])(handler), 'function', 'key', 'retry'),
            (function(retry_for=LookupError)(handler), 'function/deployment', 'os', 'error'),
            (schedule(when='@daily')(handler), 'schedule/deployment', 'os', 'retry'),
            (schedule(when='@daily', retry_for=[LookupError])(handler), 'schedule/deployment', 'os', 'error'),
            # Functions of the published packages are tried again only when their process ends.
            (beta9.function(handler), 'function/deployment', 'os', 'error'),
            (beta9.schedule('@daily')(handler), 'schedule/deployment', 'os', 'error'),
            (beta9.function(retry_for=[LookupError])(handler), 'function/deployment', 'key', 'retry'),
            (beta9.task_queue(handler), 'taskqueue/deployment', 'os', 'retry'),
        ]
        for decorated, stub_type, kind, expected in cases:
            with self.subTest(stub_type=stub_type, kind=kind):
                outcome, answer, lines = call(decorated, json.dumps({'kind': kind}).encode(), STUB_TYPE=stub_type)
                self.assertEqual(outcome, expected)
                self.assertRegex(answer['error'], 'Error: ')
                self.assertTrue(lines)
        # An input that no handler can take is not retried.
        outcome, answer, _ = call(any_error, b'[1]', STUB_TYPE='taskqueue')
        self.assertEqual((outcome, answer['error']), ('invalid', 'the input must be a JSON object'))

    def test_an_exit_goes_through(self) -> None:
        with self.assertRaises(SystemExit):
            call(lambda: sys.exit(3))

    def test_a_coroutine_that_a_decorator_hid_is_awaited(self) -> None:
        async def inner() -> int:
            return 5

        self.assertEqual(call(lambda: inner())[:2], ('ok', 5))

    def test_results_that_are_no_json_are_refused(self) -> None:
        deep: Any = []
        for _ in range(100000):
            deep = [deep]
        for value in (float('nan'), float('-inf'), {1, 2}, b'x', object(), {(1, 2): 3}, deep):
            with self.subTest(type=type(value)), self.assertRaisesRegex(ResultError, '^(Type|Value)Error: the handler returned'):
                encode_result(value)
        while deep:  # so that its end does not recurse either
            deep = deep[0]

    def test_a_task_cancelled_before_it_began_is_not_called(self) -> None:
        task = Task('t', 'k', None, 0)
        task.cancel('timeout')
        called: List[int] = []
        outcome, _ = run_sync(application(lambda: called.append(1)), task, lambda _task, _item: None)
        self.assertEqual((outcome, called), ('timeout', []))


class LogLines(unittest.TestCase):
    def setUp(self) -> None:
        thread_tasks.install(logs.current_task.get)

    def write(self, *texts: str) -> List[str]:
        task = Task('t', 'k', None, 0)
        task.sink = Lines()
        stream = logs.LogStream('stdout', 1)
        mark = logs.current_task.set(task)
        try:
            for text in texts:
                self.assertEqual(stream.write(text), len(text))
            logs.finish_task(task)
        finally:
            logs.current_task.reset(mark)
        lines: List[str] = task.sink.lines
        return [line[len('stdout ') :] for line in lines]

    def test_text_is_cut_at_line_ends_only(self) -> None:
        self.assertEqual(self.write('a', 'b\nc', '\n', '\n', 'd\r\n', 'rest'), ['ab', 'c', '', 'd', 'rest'])

    def test_a_long_line_is_cut_between_characters_and_nothing_is_lost(self) -> None:
        text = 'x' + 'é' * MAX_LINE_BYTES
        for lines in (self.write(text + '\n'), self.write(text, '\n'), self.write(text)):
            self.assertEqual([len(line.encode()) for line in lines], [MAX_LINE_BYTES - 1, MAX_LINE_BYTES, 2])
            self.assertEqual(''.join(lines), text)

    def test_half_a_surrogate_pair_is_printed_escaped(self) -> None:
        self.assertEqual(self.write('\ud800\n'), ['\\ud800'])

    def test_only_text_is_written(self) -> None:
        with self.assertRaisesRegex(TypeError, 'must be str, not bytes'):
            logs.LogStream('stdout', 1).write(b'x')  # type: ignore[arg-type]
