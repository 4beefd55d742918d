"""Receives Longshore's own webhooks, and believes only what is signed. A public web application without a framework.

The body is checked as it came, before it is parsed. An event may come more than once, with the same `webhook-id`: the
Map remembers those that were handled. Do not subscribe it to `task.*`: each delivery is itself a task.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any, Awaitable, Callable, Dict

from longshore import Image, Map, asgi

Message = Dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MOST_BYTES = 256 * 1024
DAY_SECONDS = 24 * 3600

handled = Map(name='webhook-consumer')


def handle(event: dict[str, Any]) -> None:
    """Your own work goes here: a message to people, a ticket, a row."""
    data = event.get('data') or {}
    print(event['type'], data.get('name') or data.get('deployment_name') or data.get('id'), flush=True)


def take(headers: dict[str, str], body: bytes) -> None:
    """Handles a genuine event once. Raises WebhookVerificationError."""
    from standardwebhooks import Webhook

    event: dict[str, Any] = Webhook(os.environ['WEBHOOK_SECRET']).verify(body, headers)
    if headers['webhook-id'] not in handled:
        handle(event)
        handled.set(headers['webhook-id'], event['type'], ttl=DAY_SECONDS)


async def body_of(receive: Receive) -> bytes | None:
    """The body; None: it is too large."""
    body, more = b'', True
    while more:
        message = await receive()
        body += message.get('body', b'')
        more = message.get('more_body', False)
        if len(body) > MOST_BYTES:
            return None
    return body


async def answer(send: Send, status: int, text: str) -> None:
    body = json.dumps({'message': text}).encode()
    headers = [(b'content-type', b'application/json'), (b'content-length', str(len(body)).encode())]
    await send({'type': 'http.response.start', 'status': status, 'headers': headers})
    await send({'type': 'http.response.body', 'body': body})


@asgi(
    name='webhook-consumer',
    cpu='250m',
    memory=128,
    authorized=False,
    concurrent_requests=20,
    image=Image(python_packages=['standardwebhooks==1.1.0']),
    secrets=['WEBHOOK_SECRET'],
)
async def app(scope: Message, receive: Receive, send: Send) -> None:
    if scope['type'] != 'http':
        return
    from standardwebhooks import WebhookVerificationError

    body = await body_of(receive)
    if scope['method'] != 'POST' or body is None:
        await answer(send, 400, 'an event of at most 256 KiB is a POST')
        return
    headers = {name.decode('latin-1').lower(): value.decode('latin-1') for name, value in scope['headers']}
    try:
        await asyncio.get_running_loop().run_in_executor(None, take, headers, body)
    except WebhookVerificationError:
        await answer(send, 401, 'the signature is not right')
    else:
        await answer(send, 200, 'taken')
