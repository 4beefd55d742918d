"""For the throughput benchmark: the hello example without its line of log, with enough runner processes that slots are not the limit."""

from longshore import endpoint


@endpoint(name='bench-throughput', cpu=2, memory=512, workers=8, max_pending_tasks=1000, keep_warm_seconds=600)
def handler(name: str = 'world'):
    return {'greeting': f'Hello, {name}!'}
