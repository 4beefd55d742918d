"""What is expensive happens once per container, in `on_start`; every task uses its value.

Here it is a table of primes. In your app it is a model that is loaded, an index that is built, a pool that is opened.
"""

from __future__ import annotations

import bisect

from longshore import Context, endpoint

LIMIT = 2_000_000


def load() -> list[int]:
    sieve = bytearray([1]) * (LIMIT + 1)
    sieve[0:2] = b'\0\0'
    for number in range(2, int(LIMIT**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, LIMIT + 1, number)))
    primes = [number for number in range(LIMIT + 1) if sieve[number]]
    print(f'{len(primes)} primes up to {LIMIT}')
    return primes


@endpoint(name='primes', cpu=1, memory=512, on_start=load, workers=2)
def handler(context: Context, up_to: int = 1000) -> dict[str, int | None]:
    if not 0 <= up_to <= LIMIT:
        raise ValueError(f'up_to must be from 0 to {LIMIT}')
    primes: list[int] = context.on_start_value
    count = bisect.bisect_right(primes, up_to)
    return {'up_to': up_to, 'count': count, 'largest': primes[count - 1] if count else None}
