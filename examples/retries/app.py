"""A task queue that tries again: a service that fails now and then is asked up to three more times, after growing pauses.

`retry_for` names the exceptions that are worth another try. Others end the task at once, as a wrong input does.
"""

from __future__ import annotations

from typing import Any

from longshore import Map, task_queue

#: How often each order was tried. Shared by all containers, as a service elsewhere would be.
tries = Map(name='retries-tries')


def send_to_warehouse(order: str, failures: int) -> None:
    """Stands in for a service that is away for the first `failures` calls."""
    tries[order] = (tries[order] or 0) + 1
    if tries[order] <= failures:
        raise ConnectionError(f'the warehouse does not answer (try {tries[order]})')


@task_queue(name='orders', cpu=0.25, memory=128, retries=3, retry_for=[ConnectionError])
def handler(order: str, failures: int = 1) -> dict[str, Any]:
    if not order:
        raise ValueError('an order needs a name')
    send_to_warehouse(order, failures)
    return {'order': order, 'tries': tries[order]}
