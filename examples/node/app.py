"""A server in JavaScript: any image, any language. The image needs no Python."""

from longshore import Image, Pod, QueueDepthAutoscaler, ReadinessProbe

server = Pod(
    name='node',
    image=Image(base_image='node:22-slim'),
    entrypoint=['node', '/mnt/code/server.mjs'],
    ports=[3000],
    readiness_probe=ReadinessProbe(path='/health'),
    # A second container comes when more than fifty connections are open.
    autoscaler=QueueDepthAutoscaler(max_containers=2, tasks_per_container=50),
    env={'GREETING': 'Hello'},
    memory=256,
)
