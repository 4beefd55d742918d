"""A plain ASGI application for the benchmark of streamed calls, without any library: the same for both sides."""

import asyncio

PIECE = b'x' * 65536
EVENT_SECONDS = 5


async def web(scope, receive, send):
    if scope['type'] == 'lifespan':
        while (await receive())['type'] == 'lifespan.startup':
            await send({'type': 'lifespan.startup.complete'})
        await send({'type': 'lifespan.shutdown.complete'})
    elif scope['type'] == 'websocket':
        await echo(receive, send)
    else:
        page = PAGES[scope['path'].rsplit('/', 1)[1]]
        await page(scope, receive, send)


async def start(send, *headers):
    headers = [(b'content-type', b'application/octet-stream'), *headers]
    await send({'type': 'http.response.start', 'status': 200, 'headers': headers})


async def small(_scope, _receive, send):
    await start(send, (b'content-length', b'5'))
    await send({'type': 'http.response.body', 'body': b'hello'})


async def streamed(_scope, _receive, send):
    """Three pieces, each of a turn of the loop."""
    await start(send)
    for _ in range(3):
        await send({'type': 'http.response.body', 'body': b'a piece', 'more_body': True})
        await asyncio.sleep(0)
    await send({'type': 'http.response.body', 'body': b''})


async def download(scope, _receive, send):
    """As many bytes as the query says."""
    size = int(scope['query_string'])
    await start(send, (b'content-length', b'%d' % size))
    while size > 0:
        await send({'type': 'http.response.body', 'body': PIECE[:size], 'more_body': size > len(PIECE)})
        size -= len(PIECE)


async def upload(_scope, receive, send):
    """Answers the size of the body."""
    size, more = 0, True
    while more:
        message = await receive()
        if message['type'] == 'http.disconnect':
            return
        size += len(message.get('body', b''))
        more = message.get('more_body', False)
    body = b'%d' % size
    await start(send, (b'content-length', b'%d' % len(body)))
    await send({'type': 'http.response.body', 'body': body})


async def events(_scope, receive, send):
    """Server-sent events until the caller leaves, the first at once."""
    await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'content-type', b'text/event-stream')]})
    await receive()
    left = asyncio.ensure_future(receive())
    while not left.done():
        await send({'type': 'http.response.body', 'body': b'data: here\n\n', 'more_body': True})
        await asyncio.wait([left], timeout=EVENT_SECONDS)


PAGES = {page.__name__: page for page in (small, streamed, download, upload, events)}


async def echo(receive, send):
    await receive()
    await send({'type': 'websocket.accept'})
    while True:
        message = await receive()
        if message['type'] == 'websocket.disconnect':
            return
        await send({'type': 'websocket.send', 'bytes': message['bytes']})
