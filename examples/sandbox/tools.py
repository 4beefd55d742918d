"""Tools of an agent: what a model would ask for is done in a sandbox, which reaches nothing else and goes at the end.

Here the calls are a list. In your agent a model makes them, one after the other, and reads each answer.
"""

from __future__ import annotations

import json
from urllib import request

from longshore import Sandbox, SandboxInstance
from longshore.client import installation

CALLS = [
    {'tool': 'write_file', 'path': '/tmp/prices.csv', 'text': 'tea,3\ncoffee,4\n'},
    {'tool': 'run_code', 'code': "print(sum(int(line.split(',')[1]) for line in open('/tmp/prices.csv')))"},
    {'tool': 'run_command', 'command': 'wc -l < /tmp/prices.csv'},
    {'tool': 'run_code', 'code': 'import time\nwhile True: time.sleep(1)'},
    {'tool': 'run_code', 'code': "import urllib.request\nurllib.request.urlopen('http://198.51.100.1', timeout=5)"},
    {'tool': 'serve', 'folder': '/tmp', 'page': 'prices.csv'},
]
SECONDS = 5
MOST_CHARACTERS = 2000


def answer(box: SandboxInstance, tool: str, **given: str) -> str:
    """Does one call, and says in a few words how it went: a model reads the end of a long output best."""
    if tool == 'write_file':
        box.fs.write_text(given['path'], given['text'])
        return 'written'
    if tool == 'serve':
        return served(box, given['folder'], given['page'])
    command = ('python3', '-c', given['code']) if tool == 'run_code' else ('sh', '-c', given['command'])
    process = box.process.exec(*command)
    try:
        code = process.wait(timeout=SECONDS)
    except RuntimeError:
        process.kill()
        return f'stopped after {SECONDS} seconds'
    said = (process.stdout.read() + process.stderr.read()).strip()[-MOST_CHARACTERS:]
    return said if code == 0 else f'ended with {code}: {said.splitlines()[-1] if said else ""}'


def served(box: SandboxInstance, folder: str, page: str) -> str:
    """Starts a web server in the sandbox, and fetches a page by the address of its port."""
    server = box.process.exec('python3', '-u', '-m', 'http.server', '8000', cwd=folder)
    for line in server.stdout:
        if line.startswith('Serving'):
            break
    _, token = installation()
    asked = request.Request(f'{box.expose_port(8000)}/{page}', headers={'Authorization': f'Bearer {token}'})
    with request.urlopen(asked, timeout=30) as found:
        text: bytes = found.read()
        return text.decode()


if __name__ == '__main__':
    with Sandbox(name='tools', cpu=0.5, memory=256, block_network=True).create() as box:
        for call in CALLS:
            print(json.dumps({'tool': call['tool'], 'answer': answer(box, **call)}), flush=True)
