"""A chat room: an ASGI application in plain Python, without a framework. Open its address in two windows.

The page finds its WebSocket by its own address, so it works in the path form (`/asgi/chat/…`) and on a host of its own.
Everybody must reach the same process: one container, one worker.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Awaitable, Callable, MutableMapping

from longshore import QueueDepthAutoscaler, asgi

PAGE = b"""<!doctype html>
<meta charset="utf-8">
<title>Chat</title>
<style>body { font: 16px sans-serif; max-width: 40em; margin: 2em auto } li { list-style: none }</style>
<ul id="lines"></ul>
<form><input id="text" autocomplete="off" autofocus placeholder="Say something"></form>
<script>
  const address = new URL(location.href)
  address.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:'
  address.hash = ''
  const socket = new WebSocket(address)
  const show = (text) => {
    const line = document.createElement('li')
    line.textContent = text
    document.getElementById('lines').append(line)
  }
  socket.onmessage = (event) => {
    const { name, text } = JSON.parse(event.data)
    show(name + ': ' + text)
  }
  socket.onclose = (event) => show('(closed: ' + event.code + ' ' + event.reason + ')')
  document.querySelector('form').onsubmit = (event) => {
    event.preventDefault()
    const input = document.getElementById('text')
    socket.send(input.value)
    input.value = ''
  }
</script>
"""
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

#: Messages that may wait for a member who reads slowly; who has more is sent away.
MOST_WAITING = 100

members: dict[str, asyncio.Queue[str | None]] = {}
joined = 0


def tell(name: str, text: str) -> None:
    for member, waiting in list(members.items()):
        if waiting.qsize() >= MOST_WAITING:
            members.pop(member).put_nowait(None)
        else:
            waiting.put_nowait(json.dumps({'name': name, 'text': text}))


@asgi(name='chat', autoscaler=QueueDepthAutoscaler(max_containers=1), cpu=0.25, memory=128, concurrent_requests=200, keep_warm_seconds=300, timeout=600)
async def app(scope: Message, receive: Receive, send: Send) -> None:
    if scope['type'] == 'http':
        await page(send)
    elif scope['type'] == 'websocket':
        await chat(receive, send)
    else:
        raise NotImplementedError(scope['type'])


async def page(send: Send) -> None:
    headers = [(b'content-type', b'text/html; charset=utf-8'), (b'content-length', b'%d' % len(PAGE))]
    await send({'type': 'http.response.start', 'status': 200, 'headers': headers})
    await send({'type': 'http.response.body', 'body': PAGE})


async def chat(receive: Receive, send: Send) -> None:
    global joined
    joined += 1
    name = f'guest {joined}'
    waiting = members[name] = asyncio.Queue()
    await receive()
    await send({'type': 'websocket.accept'})
    sender = asyncio.ensure_future(deliver(waiting, send))
    tell('room', f'{name} is here')
    try:
        while True:
            message = await receive()
            if message['type'] == 'websocket.disconnect':
                return
            tell(name, message.get('text') or '')
    finally:
        members.pop(name, None)
        sender.cancel()
        tell('room', f'{name} left')


async def deliver(waiting: asyncio.Queue[str | None], send: Send) -> None:
    while True:
        text = await waiting.get()
        if text is None:
            await send({'type': 'websocket.close', 'code': 1013, 'reason': 'you read too slowly'})
            return
        await send({'type': 'websocket.send', 'text': text})
