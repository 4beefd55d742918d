"""For the benchmark of an agent at rest: containers that are kept and never called."""

from longshore import QueueDepthAutoscaler, endpoint


@endpoint(
    name='bench-rest',
    cpu=0.05,
    memory=64,
    autoscaler=QueueDepthAutoscaler(min_containers=50, max_containers=50),
)
def handler():
    return {}


@endpoint(
    name='bench-rest-quick',
    cpu=0.05,
    memory=64,
    autoscaler=QueueDepthAutoscaler(min_containers=10, max_containers=10),
)
def few():
    return {}
