"""A site of files that do not change, from a web server of the standard library: a pod needs no handler.

Any program that listens on a port will do, such as nginx in an image of yours.
"""

from longshore import Pod, ReadinessProbe

site = Pod(
    name='site',
    entrypoint=['python3', '-m', 'http.server', '8000', '--directory', 'pages'],
    ports=[8000],
    readiness_probe=ReadinessProbe(path='/index.html'),
    cpu=0.25,
    authorized=False,
)
