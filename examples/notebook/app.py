"""A notebook in the browser, with its files in a volume: JupyterLab as a pod.

`longshore deploy` prints an address for a browser. The platform asks for a token of the workspace there, so Jupyter
asks for none of its own. One container serves, as long as somebody has the page open, and half an hour longer.
"""

from longshore import Image, Pod, ReadinessProbe, Volume

notebook = Pod(
    name='notebook',
    image=Image(python_packages=['jupyterlab==4.4.3']),
    entrypoint=[
        'python3',
        '-m',
        'jupyterlab',
        '--ip=0.0.0.0',
        '--port=8888',
        '--no-browser',
        '--allow-root',
        '--ServerApp.token=',
        '--ServerApp.password=',
        '--ServerApp.allow_remote_access=True',
        '--ServerApp.root_dir=/volumes/notebooks',
    ],
    ports=[8888],
    readiness_probe=ReadinessProbe(path='/api'),
    volumes=[Volume('notebooks', 'notebooks')],
    keep_warm_seconds=1800,
    cpu=2,
    memory='2gi',
)
