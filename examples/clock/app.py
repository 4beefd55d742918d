"""A schedule: runs every minute by itself, in the time of one city, and whenever it is called."""

from __future__ import annotations

from datetime import datetime, timezone

from longshore import schedule


@schedule(name='clock', when='* * * * *', timezone='Europe/Berlin', cpu=0.1, memory=128)
def handler() -> dict[str, str]:
    now = datetime.now(timezone.utc).isoformat(timespec='seconds')
    print('it is', now)
    return {'at': now}
