"""Output of child processes and C code in a runner process, as the process reads it."""

from __future__ import annotations

import os
import sys
import threading
import unittest
from typing import Any, List, Tuple

from longshore.runner.outputs import Capture, Pipes
from longshore.runner.task import Task

WAIT_SECONDS = 5.0


class TestCapture(unittest.TestCase):
    def setUp(self) -> None:
        self.lines: List[bytes] = []
        self.pipes = Pipes()
        others = set(threading.enumerate())
        self.capture = Capture(self.pipes.reads, self.pipes.page, self.send, self.send_now, lambda _task: True)
        self.follower = next(thread for thread in threading.enumerate() if thread not in others)

    def send(self, _task: object, _stream: str, lines: List[bytes]) -> None:
        self.lines.extend(lines)

    def send_now(self, _task: object, _stream: str, lines: List[bytes]) -> Tuple[int, int]:
        self.lines.extend(lines)
        return len(lines), 0

    def tearDown(self) -> None:
        self.capture._over = True
        self.pipes.give_away()
        self.follower.join(WAIT_SECONDS)
        for descriptor in self.pipes.reads:
            os.close(descriptor)

    def test_a_print_of_a_signal_handler_or_finaliser_at_any_line_never_waits_for_its_own_thread(self) -> None:
        prints = 0

        def between(frame: Any, _event: str, _value: object) -> Any:
            """Runs before each line of the file, where a signal handler or a finaliser may run, too."""
            nonlocal prints
            if frame.f_code.co_filename == sys.modules[Capture.__module__].__file__:
                prints += 1
                self.capture.catch_up()
            return between

        def run() -> None:
            task = Task('task-1', 'token', None, 0)
            sys.settrace(between)
            self.capture.begin(task)
            os.write(self.pipes.out_write, b'a line\nno end')
            self.capture.catch_up()
            self.capture.end(task)
            sys.settrace(None)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(WAIT_SECONDS)
        self.assertFalse(thread.is_alive(), 'it waits for its own lock')
        self.assertGreater(prints, 20)
        self.assertEqual(self.lines, [b'a line', b'no end'])


if __name__ == '__main__':
    unittest.main()
