"""The apps of the benchmark of log lines: five containers that write at a fixed rate, and an endpoint called beside."""

import os
import sys
import time

from longshore import QueueDepthAutoscaler, endpoint

FIVE = QueueDepthAutoscaler(min_containers=5, max_containers=5, tasks_per_container=1)
EVERY_S = 0.01


@endpoint(name='bench-logs-write', cpu=0.5, memory=128, autoscaler=FIVE, keep_warm_seconds=3600)
def write(to: str, seconds: float, per_second: int):
    """Writes lines in bursts of a hundredth of a second. Returns how many were written."""
    rest = 'x' * 80
    written = 0
    started = time.monotonic()
    with open(os.devnull, 'w') as nowhere:
        sink = sys.stdout if to == 'stdout' else nowhere
        while (passed := time.monotonic() - started) < seconds:
            due = int(passed * per_second)
            while written < due:
                sink.write(f'{written} {rest}\n')
                written += 1
            sink.flush()
            time.sleep(EVERY_S)
    return {'written': written}


@endpoint(name='bench-logs-call', cpu=0.5, memory=128, concurrent_requests=32, keep_warm_seconds=3600)
async def call(name: str = 'world'):
    return {'greeting': f'Hello, {name}!'}
