"""A minimal handler for the cold start benchmark; no container is kept."""

from longshore import endpoint


@endpoint(name='bench-cold', cpu=1, memory=128, keep_warm_seconds=0)
def handler(name: str = 'world'):
    return {'greeting': f'Hello, {name}!'}
