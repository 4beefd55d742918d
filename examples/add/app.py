"""A function: every call that waits gets a container, and the caller gets what it returns.

As a script (`PYTHONPATH=python python3 examples/add/app.py`) it calls itself, once it is deployed: here, then in containers.
"""

from longshore import function


@function(name='add', cpu=0.1, memory=128)
def handler(a: int, b: int = 0) -> int:
    print(f'adding {a} and {b}')
    return a + b


if __name__ == '__main__':
    print(handler.local(1, b=2))
    print(handler.remote(1, b=2))
    print(list(handler.map([1, 2, 3])))
