"""An app for the benchmark of scaling: small enough that fifty containers fit on a small machine."""

from longshore import endpoint


@endpoint(name='bench-scale', cpu=0.25, memory=64, keep_warm_seconds=0)
def handler(name: str = 'world'):
    return {'greeting': f'Hello, {name}!'}
