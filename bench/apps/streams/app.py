"""The apps of the benchmark of streamed calls: the ASGI application, and an endpoint that is called beside it."""

from web import web

from longshore import asgi, endpoint

streams = asgi(
    name='bench-streams',
    cpu=1,
    memory=512,
    concurrent_requests=1000,
    max_pending_tasks=2000,
    keep_warm_seconds=3600,
)(web)


@endpoint(name='bench-streams-call', cpu=0.5, memory=128, concurrent_requests=32, keep_warm_seconds=3600)
async def call(name: str = 'world'):
    return {'greeting': f'Hello, {name}!'}
