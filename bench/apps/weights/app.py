"""Weights of so many mebibytes: read from the container's disk or a cache volume, downloaded first where they are not there."""

import os
import shutil
import urllib.request

from longshore import Volume, endpoint, fill_once


@endpoint(
    name='bench-weights',
    cpu=1,
    memory='2gi',
    keep_warm_seconds=0,
    volumes=[Volume(name='bench-weights', mount_path='/models', driver='cache')],
)
def handler(url: str, name: str, cached: bool):
    def download(folder):
        with urllib.request.urlopen(url, timeout=120) as answer, open(os.path.join(folder, 'weights'), 'wb') as file:
            shutil.copyfileobj(answer, file, 1 << 20)

    if cached:
        folder = fill_once('/models/' + name, download)
    else:
        folder = '/tmp/' + name
        os.mkdir(folder)
        download(folder)
    read = 0
    with open(os.path.join(folder, 'weights'), 'rb', buffering=0) as file:
        buffer = bytearray(1 << 20)
        while size := file.readinto(buffer):
            read += size
    return {'bytes': read}
