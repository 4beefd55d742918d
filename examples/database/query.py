"""A database client in a sandbox: SQL that somebody else wrote, such as a model, reaches one database and nothing else.

    DATABASE_URL=postgres://reader:password@203.0.113.7:5432/shop python3 query.py 'select 1'
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any
from urllib.parse import urlsplit

from longshore import Image, Sandbox

# The statement is its input, so that no shell and no command line has it.
CLIENT = """
import json, os, sys
from urllib.parse import urlsplit
import pg8000.native
url = urlsplit(os.environ['DATABASE_URL'])
with pg8000.native.Connection(
    url.username or 'postgres', host=url.hostname, port=url.port or 5432, database=url.path[1:], password=url.password, timeout=10
) as database:
    database.run('begin read only')  # and no end: a statement comes alone, and changes nothing
    rows = database.run(sys.stdin.read())
    names = [column['name'] for column in database.columns or []]
    json.dump([dict(zip(names, row)) for row in rows or []], sys.stdout, default=str)
"""


def query(sql: str, database: str) -> list[dict[str, Any]]:
    """The rows of a statement. Raises RuntimeError with the database's answer."""
    sandbox = Sandbox(
        name='query',
        image=Image(python_packages=['pg8000==1.31.2']),
        # An address, since a sandbox with a list resolves no names.
        allow_list=[f'{urlsplit(database).hostname}/32'],
        memory=256,
    )
    with sandbox.create() as box:
        process = box.process.exec('python3', '-c', CLIENT, env={'DATABASE_URL': database}, stdin=sql)
        if process.wait(timeout=60) != 0:
            raise RuntimeError(process.stderr.read().strip().splitlines()[-1])
        rows: list[dict[str, Any]] = json.loads(process.stdout.read())
        return rows


if __name__ == '__main__':
    for row in query(sys.argv[1], os.environ['DATABASE_URL']):
        print(json.dumps(row))
