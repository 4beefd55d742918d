"""An app for the benchmark of a killed container: one container is always wanted."""

from longshore import QueueDepthAutoscaler, endpoint


@endpoint(name='bench-kept', cpu=0.25, memory=128, autoscaler=QueueDepthAutoscaler(min_containers=1, max_containers=1))
def handler(name: str = 'world'):
    return {'greeting': f'Hello, {name}!'}
