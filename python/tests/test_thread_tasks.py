"""Threads, executors and pools of handlers, each in a program of its own, because the runner patches `threading`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unittest
from typing import Any, Dict

PACKAGES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
PROGRAM = '''
import asyncio, concurrent.futures, contextvars, inspect, json, multiprocessing, queue, sys, threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.dummy import Pool
from longshore.runner import thread_tasks

current = contextvars.ContextVar('current', default=None)
said = {}

class Task:
    def __init__(self, name):
        self.name, self.is_over = name, False

def here():
    task = thread_tasks.here()
    return None if task is None else task.name

def during(name, work, ends=True):
    """What `work` gives while a task of that name runs."""
    task = Task(name)
    token = current.set(task)
    try:
        said[name] = work()
    except BaseException as error:
        said[name] = '%s: %s' % (type(error).__name__, error)
    current.reset(token)
    task.is_over = ends
    return task

def joined(thread):
    found = []
    thread.found = found
    thread.start()
    thread.join()
    return found[0] if found else 'nothing'

def started(kind, *args):
    class Own(kind):
        def run(self):
            self.found.append(here())
    return joined(Own(*args))
'''
RESULT = '\nprint(json.dumps(said))\n'
INSTALL = '\nthread_tasks.install(current.get)\nthread_tasks.follow_imported()\n'


def said_by(text: str, before: str = '') -> Dict[str, Any]:
    environ = dict(os.environ, PYTHONPATH=PACKAGES, PYTHONDONTWRITEBYTECODE='1')
    ran = subprocess.run(
        [sys.executable, '-c', PROGRAM + before + INSTALL + text + RESULT], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    found: Dict[str, Any] = json.loads(ran.stdout)
    return found


class ThreadTasks(unittest.TestCase):
    def test_threads_of_every_make_have_the_task_that_started_them(self) -> None:
        said = said_by(
            '''
class Starts(threading.Thread):
    def start(self):
        self.extra = 1
        threading.Thread.start(self)

class Refuses(threading.Thread):
    def __setattr__(self, name, value):
        if 'task' in name:
            raise AttributeError(name)
        super().__setattr__(name, value)

class Unmade(threading.Thread):
    def __init__(self):
        pass

def again():
    thread = threading.Thread(target=int)
    thread.start()
    thread.start()

def of_timer():
    found = []
    timer = threading.Timer(0, lambda: found.append(here()))
    timer.start()
    timer.join()
    return found[0]

class Looks:
    """A stand-in that some program hands to `Thread.start`."""
    __slots__ = ()

during('plain', lambda: started(threading.Thread))
during('starts', lambda: started(Starts))
during('refuses', lambda: started(Refuses))
during('timer', of_timer)
during('nested', lambda: (lambda found: (joined(threading.Thread(target=lambda: found.append(started(threading.Thread)))), found)[1])([]))
during('unmade', lambda: Unmade().start())
during('again', again)
during('looks', lambda: threading.Thread.start(Looks()))
'''
        )
        for name in ('plain', 'starts', 'refuses', 'timer'):
            self.assertEqual(said[name], name)
        self.assertEqual(said['nested'], ['nested'])
        # The interpreter's own refusals.
        self.assertEqual(said['unmade'], 'RuntimeError: thread.__init__() not called')
        self.assertEqual(said['again'], 'RuntimeError: threads can only be started once')
        self.assertRegex(said['looks'], "^AttributeError: 'Looks' object has no attribute '_")

    def test_calls_of_executors_and_pools_have_the_task_that_made_them_also_where_another_runs(self) -> None:
        said = said_by(
            '''
shared = {}

def in_executor():
    executor = shared.setdefault('executor', ThreadPoolExecutor(1))
    return [executor.submit(here).result(), list(executor.map(lambda _: here(), [1]))[0]]

def in_pool():
    pool = shared.get('pool') or shared.setdefault('pool', Pool(1))
    return [
        pool.apply(here), pool.map(lambda _: here(), [1])[0], pool.starmap(lambda *_: here(), [(1, 2)])[0],
        next(pool.imap(lambda _: here(), [1])), next(pool.imap_unordered(lambda _: here(), [1])),
        pool.apply_async(here).get(), pool.map_async(lambda _: here(), [1]).get()[0],
    ]

async def in_loop():
    loop = asyncio.get_running_loop()
    found = [await loop.run_in_executor(None, here), await loop.run_in_executor(shared['executor'], here)]
    return found + ([await asyncio.to_thread(here)] if hasattr(asyncio, 'to_thread') else [])

# The first task, whose threads these are, still runs.
first = during('first', in_executor, ends=False)
pools = during('pools', in_pool, ends=False)
during('second', in_executor)
during('second pools', in_pool)
during('loop', lambda: asyncio.run(in_loop()))
said['none'] = shared['executor'].submit(here).result()
said['none in a pool'] = shared['pool'].apply(here)
'''
        )
        for name in ('first', 'second', 'pools', 'second pools', 'loop'):
            self.assertEqual(set(said[name]), {name}, name)
        self.assertEqual([said['none'], said['none in a pool']], [None, None])

    def test_a_thread_of_an_executor_may_have_the_context_of_an_earlier_task(self) -> None:
        # So it is with gevent, and in builds of Python whose threads inherit their context.
        said = said_by(
            '''
first = Task('first')
shared = ThreadPoolExecutor(1, initializer=lambda: current.set(first))
during('second', lambda: shared.submit(here).result())
said['none'] = shared.submit(here).result()

def serves():
    'As the runner does: the code of a call says whose it is.'
    token = current.set(Task('served'))
    try:
        return here()
    finally:
        current.reset(token)

said['served'] = shared.submit(serves).result()
'''
        )
        self.assertEqual([said['second'], said['none'], said['served']], ['second', None, 'served'])

    def test_threads_of_before_and_those_that_outlive_their_task_have_none(self) -> None:
        said = said_by(
            '''
go.set()
said['of before'] = found.get()
during('executor of before', lambda: early.submit(here).result())

def outlives():
    going, asked = threading.Event(), queue.Queue()
    def run():
        asked.put(here())
        going.wait()
        asked.put(here())
    threading.Thread(target=run, daemon=True).start()
    said['outlives at first'] = asked.get()
    return going, asked

kept = []
during('outlives', lambda: kept.extend(outlives()))
kept[0].set()
said['outlives at last'] = kept[1].get()
''',
            '''
go, found = threading.Event(), queue.Queue()
threading.Thread(target=lambda: (go.wait(), found.put(thread_tasks.here())), daemon=True).start()
early = ThreadPoolExecutor(1)
early.submit(int).result()
''',
        )
        self.assertEqual([said['of before'], said['outlives at first'], said['outlives at last']], [None, 'outlives', None])
        self.assertEqual(said['executor of before'], 'executor of before')

    def test_calls_keep_their_own_ways(self) -> None:
        said = said_by(
            '''
def echoed(*args, **keywords):
    return [list(args), keywords]

def keywords():
    with ThreadPoolExecutor(1) as executor:
        executor.submit(int).result()
        return executor.submit(echoed, 1, self=2, function=3, task=4).result()

def without():
    with ThreadPoolExecutor(1) as executor:
        executor.submit(int).result()
        executor.submit()

def initialised():
    found = []
    with ThreadPoolExecutor(1, initializer=lambda given: found.append(given), initargs=(5,)) as executor:
        executor.submit(int).result()
    return found

def raises():
    with ThreadPoolExecutor(1) as executor:
        executor.submit(int).result()
        executor.submit(lambda: {}['x']).result()

def cancelled():
    going = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        executor.submit(going.wait)
        future = executor.submit(int)
        was = future.cancel()
        going.set()
    return was

def in_processes():
    # Their calls are pickled.
    context = multiprocessing.get_context('fork')
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor, context.Pool(1) as pool:
        return [executor.submit(abs, -1).result(), pool.apply(abs, (-2,)), pool.map(abs, [-3])[0]]

class InterpreterPoolExecutor(ThreadPoolExecutor):
    """As Python 3.14 has it: it pickles its calls for other interpreters."""
    def submit(self, fn, *args):
        return super().submit(fn, *args)

def interpreters():
    with InterpreterPoolExecutor(1) as executor:
        going, begun = threading.Event(), threading.Event()
        executor.submit(lambda: (begun.set(), going.wait()))
        begun.wait()
        executor.submit(abs, -1)
        item = executor._work_queue.get_nowait()
        going.set()
        found = vars(item) if hasattr(item, '__dict__') else {}
        return str(found.get('fn') or found.get('task'))

for work in (keywords, without, initialised, raises, cancelled, in_processes, interpreters):
    during(work.__name__, work)
start, submit = threading.Thread.start, ThreadPoolExecutor.submit
said['names'] = [start.__name__, start.__qualname__, start.__module__, bool(start.__doc__), submit.__name__, submit.__qualname__, submit.__module__, bool(submit.__doc__)]
said['signature'] = str(inspect.signature(start))
'''
        )
        self.assertEqual(said['keywords'], [[1], {'self': 2, 'function': 3, 'task': 4}])
        self.assertRegex(said['without'], r"^TypeError: .*submit\(\) missing 1 required positional argument: 'fn'$|^TypeError: submit expected at least 1")
        self.assertEqual([said['initialised'], said['raises'], said['cancelled']], [[5], "KeyError: 'x'", True])
        self.assertEqual(said['in_processes'], [1, 2, 3])
        self.assertIn('built-in function abs', said['interpreters'])
        self.assertEqual(said['names'][:4], ['start', 'Thread.start', 'threading', True])
        self.assertEqual(said['names'][4:7], ['submit', 'ThreadPoolExecutor.submit', 'concurrent.futures.thread'])
        self.assertEqual(said['signature'], '(self)')

    def test_a_program_that_patches_threads_itself_still_does(self) -> None:
        said = said_by(
            '''
start, count = threading.Thread.start, []

def own(thread):
    count.append(1)
    start(thread)

threading.Thread.start = own
during('patched', lambda: started(threading.Thread))
thread_tasks.install(current.get)
during('again', lambda: started(threading.Thread))
said['count'] = len(count)
'''
        )
        self.assertEqual([said['patched'], said['again'], said['count']], ['patched', 'again', 2])


if __name__ == '__main__':
    unittest.main()
