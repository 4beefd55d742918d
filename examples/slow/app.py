"""A slow endpoint that shows scaling: a container for every waiting task, up to three, and none again after five idle seconds."""

from __future__ import annotations

import os
import time
from typing import Any

from longshore import QueueDepthAutoscaler, endpoint


@endpoint(
    name='slow',
    cpu=0.25,
    memory=128,
    keep_warm_seconds=5,
    max_pending_tasks=500,
    autoscaler=QueueDepthAutoscaler(max_containers=3, tasks_per_container=1),
)
def handler(seconds: float = 1.0) -> dict[str, Any]:
    time.sleep(seconds)
    return {'slept': seconds, 'container': os.environ.get('CONTAINER_ID', '')}
