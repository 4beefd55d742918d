"""The hello example without its line of log, for the throughput benchmark.

`handler` has as many slots as there are connections, as the baseline's worker has. `forked` is a plain function in
processes of its own, one call at a time in each.
"""

from longshore import endpoint


@endpoint(
    name='bench-throughput',
    cpu=2,
    memory=512,
    workers=2,
    concurrent_requests=32,
    max_pending_tasks=1000,
    keep_warm_seconds=600,
)
async def handler(name: str = 'world'):
    return {'greeting': f'Hello, {name}!'}


@endpoint(name='bench-forked', cpu=2, memory=512, workers=8, max_pending_tasks=1000, keep_warm_seconds=600)
def forked(name: str = 'world'):
    return {'greeting': f'Hello, {name}!'}
