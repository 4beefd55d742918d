"""A FastAPI application: its routes, its documentation page, and a download that is sent as it is made.

FastAPI must be in the container's image. Until images are built from definitions, make one by hand on each machine, or
push it to a registry that the machines reach:

    docker build -t fastapi:1 - <<'END'
    FROM python:3.12-slim
    RUN pip install --no-cache-dir fastapi
    ENV PYTHONDONTWRITEBYTECODE=1
    END

Without a container build, put FastAPI beside a copy of this file, and leave out `image=`. The base image has Python 3.11:

    pip install --target . --python-version 3.11 --only-binary=:all: fastapi
"""

from longshore import Image, asgi


@asgi(name='fastapi', image=Image(base_image='fastapi:1'), cpu=1, memory='512mi', concurrent_requests=50)
def site():
    from contextlib import asynccontextmanager

    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse

    @asynccontextmanager
    async def lifespan(app):
        print('started')
        yield
        print('stopped')

    app = FastAPI(title='Longshore', lifespan=lifespan)

    @app.get('/')
    async def hello(name: str = 'world'):
        return {'greeting': f'Hello, {name}!'}

    @app.get('/squares')
    async def squares(up_to: int = 1000):
        lines = (f'{number} {number * number}\n' for number in range(up_to))
        return StreamingResponse(lines, media_type='text/plain')

    return app
