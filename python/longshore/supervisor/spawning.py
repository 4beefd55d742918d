"""The start of a program: a session of its own, its directory, its environment, and no rights or handlers of ours."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import termios

from .loop import default_signals, fork

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import List, Mapping, NoReturn, Optional, Tuple

#: The kernel takes programs before the supervisor when the container's memory is used up.
OOM_SCORE = b'500'


class Start:
    """What a new program is to have."""

    def __init__(self, command: List[str], cwd: str, env: Mapping[str, str]) -> None:
        self.command = command
        self.cwd = cwd
        self.env = env
        #: Descriptors of input, output and errors.
        self.files: Tuple[int, int, int] = (-1, -1, -1)
        self.terminal = False
        self.limits: Optional[Tuple[int, int]] = None

    def begin(self) -> Tuple[int, int]:
        """Forks. Returns the process, and a descriptor that ends when the program runs, or tells why it cannot."""
        report, report_write = os.pipe()
        try:
            pid = fork()
        except BaseException:
            os.close(report)
            os.close(report_write)
            raise
        if pid == 0:
            self._become(report_write)
        os.close(report_write)
        os.set_blocking(report, False)
        return pid, report

    def _become(self, report: int) -> NoReturn:
        step = b'start'
        try:
            os.setsid()
            for number, fd in enumerate(self.files):
                os.dup2(fd, number)
            if self.terminal:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            offer_to_kernel()
            if self.limits is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, self.limits)
            default_signals()
            if self.cwd:
                step = b'cwd'
                os.chdir(self.cwd)
            step = b'exec'
            self._execute()
        except OSError as error:
            os.write(report, b'%s %d' % (step, error.errno or errno.EINVAL))
        except BaseException:
            os.write(report, b'%s %d' % (step, errno.EINVAL))
        finally:
            os._exit(127)

    def _execute(self) -> NoReturn:
        """As the C library's `execvpe`; Python's own imports modules first. Raises OSError."""
        name = self.command[0]
        if '/' in name:
            os.execve(name, self.command, self.env)
        missed = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        for folder in self.env.get('PATH', os.defpath).split(':'):
            try:
                os.execve(os.path.join(folder, name), self.command, self.env)
            except (FileNotFoundError, NotADirectoryError):
                pass
            except PermissionError as error:
                missed = error  # another folder may have one that runs
        raise missed


def offer_to_kernel() -> None:
    """This process is to be taken first when memory is used up."""
    try:
        fd = os.open('/proc/self/oom_score_adj', os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, OOM_SCORE)
        os.close(fd)
    except OSError:
        pass


def failure_of(report: bytes, start: Start) -> Tuple[int, str]:
    """The error number in a report, and a text that names what could not be had."""
    step, _, number = report.partition(b' ')
    code = int(number)
    what = 'the directory %s' % start.cwd if step == b'cwd' else 'the program %s' % start.command[0]
    return code, '%s: %s' % (what, os.strerror(code))
