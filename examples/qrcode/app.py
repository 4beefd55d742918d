"""A program of Debian in the image: text in, a QR code as SVG or as text out. Packages and commands are run once, when
the image is built."""

from __future__ import annotations

import subprocess

from longshore import Image, endpoint

image = Image(
    system_packages=['qrencode'],
    commands=['qrencode --version 2>&1 | head -n 1 > /etc/qrencode-version'],
)


@endpoint(name='qrcode', cpu=0.25, memory=128, image=image)
def handler(text: str, format: str = 'SVG') -> dict[str, str]:
    if format not in ('SVG', 'UTF8'):
        raise ValueError(f'format must be SVG or UTF8, not {format}')
    made = subprocess.run(['qrencode', '-t', format, '-o', '-'], input=text.encode(), capture_output=True, check=True)
    with open('/etc/qrencode-version', encoding='utf-8') as file:
        return {'code': made.stdout.decode(), 'by': file.read().strip()}
