"""An app for the benchmark of an agent at rest: containers that are kept and never called."""

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


@endpoint(
    name='bench-rest-beside-gpus',
    cpu=0.05,
    memory=64,
    autoscaler=QueueDepthAutoscaler(min_containers=42, max_containers=42),
)
def beside():
    return {}


@endpoint(
    name='bench-rest-gpus',
    cpu=0.05,
    memory=64,
    gpu='H100',
    autoscaler=QueueDepthAutoscaler(min_containers=8, max_containers=8),
)
def gpus():
    return {}
