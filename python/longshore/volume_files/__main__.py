"""`python3 -m longshore.volume_files`: serves until the agent closes the connection that waits for a request.

One connection always waits. A connection that got a request is served by a thread of its own.
"""

from __future__ import annotations

import os
import socket
import threading

from .serving import serve

SOCKET = '/run/longshore/files.sock'
VOLUME = '/volume'


def main() -> None:
    os.umask(0)
    root = os.open(VOLUME, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(SOCKET)
            first = connection.recv(65536)
        except OSError:
            break
        if not first:
            break
        threading.Thread(target=serve, args=(connection, first, root)).start()


main()
