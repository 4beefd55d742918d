"""The supervisor's process, from its first connection to its end."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` adds enums (4 ms)
import os
import sys
import time

from .channel import Channel
from .loop import Loop, note, nothing
from .runner import Runner
from .settings import Settings, SettingsError, environment_of

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Callable, NoReturn, Optional, Tuple

    from .attach import ContainerOutput
    from .programs import Program, Programs
    from .wrongs import Wrong

#: Time for the agent to hear of a start that failed, and for what was printed to be taken.
LAST_SECONDS = 3.0
#: Time for programs after SIGTERM, where the supervisor ends them.
_TERM_SECONDS = 3.0
#: Time for programs after SIGTERM in a container without an entrypoint; Docker's KILL comes at 30 s.
_LEAVE_SECONDS = 25.0
NOT_FOUND = 127
NOT_STARTED = 126
_FILES = 65_536


def main() -> NoReturn:
    """Runs until the entrypoint ends, and exits with its code."""
    _open_standard_files()
    try:
        settings = Settings(os.environ)
    except SettingsError as error:
        note(str(error))
        os._exit(2)
    Main(settings).run()


class Main:
    """The parts of the process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._began = time.monotonic()
        self._loop = Loop()
        self._runner: Optional[Runner] = None
        self._entry: Optional[Program] = None
        self._output: Optional[ContainerOutput] = None
        self._leaving = False
        self._probing: object = None
        if settings.speaks_to_agent:
            self._runner = Runner(self._loop, settings.directory, settings.container_id, settings.slots)
            self._runner.on_drain = self._drain
            self._runner.starting()
            self._runner.dial()
        self._programs = self._make_programs()
        self._loop.on_signal(signal.SIGTERM, self._term)
        self._loop.on_signal(signal.SIGINT, nothing)

    def _make_programs(self) -> Programs:
        # The agent has heard of us: what follows is not paid before the hello.
        from .programs import Programs
        from .requests import Requests

        cwd = os.getcwd()
        self._cwd = self._settings.cwd or cwd
        programs = Programs(self._loop, dict(environment_of(os.environ), **self._settings.env), _raise_limits())
        requests = Requests(self._loop, programs, self._settings.directory + '/supervisor.sock', self._cwd, self._end)
        requests.dial()
        return programs

    def run(self) -> NoReturn:
        if self._settings.entrypoint:
            self._start()
        else:
            self._probe()
        self._loop.run()
        raise AssertionError('the loop ended')

    # ---- the entrypoint ----------------------------------------------------------------------------------------------
    def _start(self) -> None:
        from .wrongs import Wrong

        try:
            self._programs.start(self._settings.entrypoint, self._cwd, {}, None, False, self._started)
        except Wrong as wrong:
            self._started(None, wrong)

    def _started(self, program: Optional[Program], wrong: Optional[Wrong]) -> None:
        from .attach import ContainerOutput

        if program is None:
            assert wrong is not None
            text = 'the entrypoint cannot be started: %s' % wrong.text
            note(text)
            self._fail(text, NOT_FOUND if wrong.code == 'not_found' else NOT_STARTED)
            return
        self._entry = self._programs.entrypoint = program
        if self._runner is not None:
            self._runner.entry = program
        self._output = ContainerOutput(self._loop, program)
        program.on_end.append(self._entry_ended)
        self._probe()

    def _probe(self) -> None:
        if self._settings.probe is None:
            self._ready()
            return
        from .probe import Probing

        self._probing = Probing(self._loop, self._programs, self._settings.probe, self._cwd, self._ready)

    def _ready(self) -> None:
        if self._runner is not None:
            self._runner.ready(int((time.monotonic() - self._began) * 1000))

    def _entry_ended(self) -> None:
        assert self._entry is not None
        self._leave(self._entry.exit_code)

    def _fail(self, text: str, code: int) -> None:
        """Tells the agent that the start failed, then exits."""
        if self._runner is None:
            os._exit(code)
        self._runner.on_failure_taken = lambda: os._exit(code)
        self._runner.start_failed(text)
        self._loop.later(LAST_SECONDS, lambda: os._exit(code))

    # ---- the end -----------------------------------------------------------------------------------------------------
    def _leave(self, code: int) -> None:
        """Exits once all output was taken, or after LAST_SECONDS."""
        until = time.monotonic() + LAST_SECONDS

        def look() -> None:
            if not self._is_owed() or time.monotonic() > until:
                os._exit(code)
            self._loop.later(0.005, look)

        if not self._leaving:
            self._leaving = True
            look()

    def _is_owed(self) -> bool:
        """Whether somebody has still to take output or results."""
        if self._entry is not None and (self._entry.readers[1:] or (self._output is not None and self._output.behind)):
            return True
        runner = self._runner
        return Channel.any_unsent() or (runner is not None and runner.connected and bool(runner.unacknowledged))

    def _term(self) -> None:
        """SIGTERM goes to all programs; the entrypoint decides when the container ends."""
        self._programs.kill_all(signal.SIGTERM)
        if self._entry is None:
            self._wait_for_programs(_LEAVE_SECONDS, lambda: self._leave(128 + signal.SIGTERM))

    def _drain(self, seconds: float) -> None:
        """No further call comes. Those in hand may end, then the programs are told."""
        until = time.monotonic() + seconds

        def look() -> None:
            if self._runner is None or not self._runner.calls or time.monotonic() >= until:
                self._term()
            else:
                self._loop.later(0.05, look)

        look()

    def _end(self, answer: Callable[[], object]) -> None:
        """Ends all programs, then the supervisor."""
        self._leaving = self._leaving or self._entry is not None
        self._programs.kill_all(signal.SIGTERM)

        def gone() -> None:
            self._programs.kill_all(signal.SIGKILL)
            answer()
            code = 0 if self._entry is None else self._entry.exit_code
            self._leaving = False
            self._leave(max(code, 0))

        self._wait_for_programs(_TERM_SECONDS, gone)

    def _wait_for_programs(self, seconds: float, call: Callable[[], object]) -> None:
        until = time.monotonic() + seconds

        def look() -> None:
            if self._programs.running() and time.monotonic() < until:
                self._loop.later(0.02, look)
            else:
                call()

        look()


def _raise_limits() -> Optional[Tuple[int, int]]:
    """Lets this process have more files open. Returns what programs are to have, where that is less."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft, hard


def _open_standard_files() -> None:
    """Descriptors 0 to 2 are open, so that no other file gets their numbers."""
    while True:
        fd = os.open('/dev/null', os.O_RDWR)
        if fd > 2:
            os.close(fd)
            return


if __name__ == '__main__':
    sys.exit(main())
