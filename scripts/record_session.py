"""Records docs/images/session.svg: a development server and a deploy, by the real commands in a terminal.

    LONGSHORE_URL=… LONGSHORE_TOKEN=… python3 scripts/record_session.py

The installation may have any address: the picture says 127.0.0.1:1994, as after `npm start`. The deployment is
deleted in the end.
"""

import html
import os
import pty
import re
import select
import signal
import shlex
import struct
import sys
import tempfile
import time
import urllib.parse
from fcntl import ioctl
from termios import TIOCSWINSZ

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PICTURE = os.path.join(ROOT, 'docs', 'images', 'session.svg')
COLUMNS = 100
LONGEST_S = 120

APP = """from longshore import endpoint

@endpoint(name="hello", cpu=0.25, memory=128)
def hello(name: str = "world"):
    print("hello called", name)
    return {"greeting": f"Hello, {name}!"}
"""


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, command, cwd, env):
        self.text = ''
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe('sh', ['sh', '-c', command], env)
        ioctl(self.fd, TIOCSWINSZ, struct.pack('HHHH', 40, COLUMNS, 0, 0))

    def read(self, until=None, from_index=0):
        """Reads up to a text, or to the end of the program."""
        end = time.monotonic() + LONGEST_S
        while until is None or until not in self.text[from_index:]:
            if time.monotonic() > end:
                raise SystemExit('%r did not come:\n%s' % (until, self.text))
            if not select.select([self.fd], [], [], 1)[0]:
                continue
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b''
            if data == b'':
                break
            self.text += data.decode('utf-8', 'replace').replace('\r\n', '\n')

    def interrupt(self):
        os.kill(self.pid, signal.SIGINT)
        self.read()

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


class Session:
    """What the picture shows: pairs of a class and a line."""

    def __init__(self, folder, env):
        self.folder = folder
        self.env = env
        self.lines = []
        host = urllib.parse.urlsplit(env['LONGSHORE_URL']).netloc
        self.hidden = [(host, '127.0.0.1:1994'), (env['LONGSHORE_TOKEN'], 'eyJ…'), (folder, '~/hello')]

    def remark(self, text):
        self.lines += [('', ''), ('remark', '# ' + text)]

    def typed(self, command):
        self.lines.append(('typed', '$ ' + self.clean(command)))

    def printed(self, text):
        for line in self.clean(text).strip('\n').split('\n'):
            self.lines += [('', part) for part in (wrap(line) if line else [''])]

    def clean(self, text):
        for secret, shown in self.hidden:
            text = text.replace(secret, shown)
        return re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', text)

    def run(self, command, shown=None):
        self.typed(shown or command)
        terminal = Terminal(command, self.folder, self.env)
        terminal.read()
        terminal.close()
        self.printed(terminal.text)


def wrap(line):
    """Parts of a line as a terminal shows them."""
    return [line[at : at + COLUMNS] for at in range(0, len(line), COLUMNS)]


def record(session):
    app = os.path.join(session.folder, 'app.py')
    with open(app, 'w', encoding='utf-8') as file:
        file.write(APP)
    session.run('cat app.py')
    session.lines.append(('', ''))
    session.typed('longshore serve app.py')
    serve = Terminal('exec longshore serve app.py', session.folder, session.env)
    serve.read(until=' -d ')
    serve.read(until='\n')
    call = next(line.strip() for line in serve.text.split('\n') if line.strip().startswith('curl'))
    call = call.replace("'{}'", '\'{"name": "Ada"}\'').replace('curl ', 'curl -sS ', 1)
    session.printed(serve.text)
    shown = len(serve.text)
    answer = Terminal(call, session.folder, session.env)
    answer.read()
    answer.close()
    serve.read('hello called', shown)
    session.remark('the printed line, in another terminal, with {"name": "Ada"}')
    session.printed(answer.text)
    session.remark('the handler now says "Good morning"; a save is loaded')
    with open(app, 'w', encoding='utf-8') as file:
        file.write(APP.replace('Hello', 'Good morning'))
    serve.read('reloaded in', shown)
    serve.read('sent)', shown)
    session.printed(serve.text[shown:])
    answer = Terminal(call, session.folder, session.env)
    answer.read()
    answer.close()
    session.printed(answer.text)
    serve.interrupt()
    serve.close()
    session.lines.append(('', ''))
    session.run('longshore deploy app.py')
    session.lines.append(('', ''))
    session.run("longshore invoke hello --data '{\"name\": \"Ada\"}'")


STYLE = """text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre;fill:#24292f}
.page{fill:#f6f8fa;stroke:#d0d7de}.typed{font-weight:bold}.remark{fill:#57606a}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117;stroke:#30363d}.remark{fill:#8b949e}}"""
LINE_HEIGHT = 18
MARGIN = 16


def picture(lines):
    height = MARGIN * 2 + LINE_HEIGHT * len(lines)
    width = MARGIN * 2 + round(COLUMNS * 7.9)
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" role="img">' % (width, height, width),
        '<title>A session of longshore in a terminal</title>',
        '<style>%s</style>' % STYLE,
        '<rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>' % (width - 1, height - 1),
    ]
    for index, (kind, line) in enumerate(lines):
        if line == '':
            continue
        name = ' class="%s"' % kind if kind else ''
        y = MARGIN + LINE_HEIGHT * index + 13
        out.append('<text x="%d" y="%d"%s xml:space="preserve">%s</text>' % (MARGIN, y, name, html.escape(line, quote=False)))
    return '\n'.join(out + ['</svg>', ''])


def main():
    if not os.environ.get('LONGSHORE_URL') or not os.environ.get('LONGSHORE_TOKEN'):
        raise SystemExit('LONGSHORE_URL and LONGSHORE_TOKEN name the installation to record with')
    with tempfile.TemporaryDirectory() as directory:
        program = os.path.join(directory, 'bin')
        folder = os.path.join(directory, 'hello')
        os.mkdir(program)
        os.mkdir(folder)
        os.symlink(os.path.join(ROOT, 'bin', 'longshore.mjs'), os.path.join(program, 'longshore'))
        env = dict(os.environ, PATH=program + os.pathsep + os.environ['PATH'], TERM='xterm-256color')
        session = Session(folder, env)
        try:
            record(session)
        finally:
            os.system(shlex.join(['sh', '-c', 'PATH=%s:$PATH longshore deployment delete hello --yes' % program]))
    os.makedirs(os.path.dirname(PICTURE), exist_ok=True)
    with open(PICTURE, 'w', encoding='utf-8') as file:
        file.write(picture(session.lines))
    print('\n'.join(line for _, line in session.lines), file=sys.stderr)


if __name__ == '__main__':
    main()
