"""The smallest endpoint: keyword inputs in, JSON out."""

from __future__ import annotations

from longshore import endpoint


@endpoint(name='hello', cpu=0.5, memory=128)
def handler(name: str = 'world') -> dict[str, str]:
    print(f'greeting {name}')
    return {'greeting': f'Hello, {name}!'}
