"""A FastAPI application: routes and their documentation page, bodies of any size in both directions, a WebSocket.

`longshore deploy` prints the application's address. With it as $URL, and a token as $TOKEN:

    curl "$URL/squares?up_to=5" -H "Authorization: Bearer $TOKEN"
    curl -T FILE "$URL/files/FILE" -H "Authorization: Bearer $TOKEN"
    curl -o FILE "$URL/download?size=1000000000" -H "Authorization: Bearer $TOKEN"
"""

from typing import Any, AsyncIterator

from longshore import Image, asgi

PIECE_BYTES = 256 * 1024


@asgi(name='fastapi', image=Image(python_packages=['fastapi==0.165.0']), cpu=1, memory='512mi', concurrent_requests=50)
def site() -> Any:
    import hashlib
    import time
    from contextlib import asynccontextmanager

    from fastapi import FastAPI, Query, Request, WebSocket
    from fastapi.responses import StreamingResponse
    from pydantic import BaseModel

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        """Runs in each process: up to `yield` before the first request, the rest when the container stops."""
        print('started')
        yield {'started_at': time.time()}
        print('stopped')

    app = FastAPI(title='Longshore', lifespan=lifespan)

    class Order(BaseModel):
        item: str
        count: int = 1
        price: float

    @app.get('/')
    async def hello(request: Request, name: str = 'world') -> dict[str, Any]:
        return {'greeting': f'Hello, {name}!', 'started_at': request.state.started_at}

    @app.get('/items/{number}')
    async def item(number: int) -> dict[str, int]:
        return {'number': number}

    @app.post('/orders')
    async def place(order: Order) -> dict[str, Any]:
        return {'item': order.item, 'total': order.count * order.price}

    @app.get('/squares')
    async def squares(up_to: int = 1000) -> StreamingResponse:
        """Lines that are sent as they are made."""
        lines = (f'{number} {number * number}\n' for number in range(up_to))
        return StreamingResponse(lines, media_type='text/plain')

    @app.put('/files/{name}')
    async def upload(name: str, request: Request) -> dict[str, Any]:
        """Takes a body of any size piece by piece, and keeps none of it."""
        digest, size = hashlib.sha256(), 0
        async for piece in request.stream():
            digest.update(piece)
            size += len(piece)
        return {'name': name, 'size': size, 'sha256': digest.hexdigest()}

    @app.get('/download')
    async def download(size: int = Query(default=1_000_000, ge=0)) -> StreamingResponse:
        """A body of any size, which is never in memory as a whole. Piece n consists of the number n."""

        async def pieces() -> AsyncIterator[bytes]:
            for number, start in enumerate(range(0, size, PIECE_BYTES)):
                piece = number.to_bytes(8, 'big') * (PIECE_BYTES // 8)
                yield piece[: size - start]

        headers = {'content-length': str(size)}
        return StreamingResponse(pieces(), media_type='application/octet-stream', headers=headers)

    @app.websocket('/echo')
    async def echo(socket: WebSocket) -> None:
        """Sends each message back; `bye` closes."""
        await socket.accept()
        while True:
            message = await socket.receive()
            if message['type'] == 'websocket.disconnect':
                print(f'closed with {message["code"]}')
                return
            text = message.get('text')
            if text == 'bye':
                await socket.close(4000, 'bye')
                return
            if text is None:
                await socket.send_bytes(message['bytes'])
            else:
                await socket.send_text(text)

    return app
