"""An image of its own: packages, a variable and a command. The first deploy builds it; later ones find it built."""

from __future__ import annotations

from longshore import Image, endpoint

image = Image(
    python_packages=['humanize==4.9.0', 'tabulate==0.9.0'],
    env_vars={'GREETING': 'hello'},
    commands=['mkdir /built', 'python3 -c "import humanize; print(humanize.__version__)" > /built/version'],
)


@endpoint(name='packages', cpu=0.2, memory=128, image=image)
def handler(number: int = 1234567) -> dict[str, str]:
    import os

    import humanize
    from tabulate import tabulate

    with open('/built/version', encoding='utf-8') as file:
        version = file.read().strip()
    return {
        'greeting': os.environ['GREETING'],
        'number': humanize.intcomma(number),
        'table': tabulate([['humanize', version]]),
    }
