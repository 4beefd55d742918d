"""Buckets of the workspace's own that a handler's containers mount.

Bad values raise DefinitionError and name the parameter.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Optional, Union

from .checks import DefinitionError, instance, text
from .definitions import Secret, Volume

_BUCKET = re.compile(r'[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){1,61}[A-Za-z0-9]')


class CloudBucketConfig:
    """
    How a bucket is reached.

    read_only: no container can write.
    force_path_style: the server wants the bucket's name in the path of requests, as many servers but Amazon's do.
    access_key, secret_key: names of secrets (`longshore secret set`) that hold its keys; none: the bucket is public.
    endpoint: URL of the server, without a path; None: Amazon's.
    region: where the server wants one.

    Raises DefinitionError, which names the parameter.
    """

    def __init__(
        self,
        read_only: bool = False,
        force_path_style: bool = False,
        access_key: Union[str, Secret, None] = None,
        secret_key: Union[str, Secret, None] = None,
        endpoint: Optional[str] = None,
        region: Optional[str] = None,
    ) -> None:
        self.read_only = bool(read_only)
        self.force_path_style = bool(force_path_style)
        self.access_key = _secret('access_key', access_key)
        self.secret_key = _secret('secret_key', secret_key)
        if (self.access_key == '') != (self.secret_key == ''):
            raise DefinitionError('access_key and secret_key: name two secrets, or none for a public bucket')
        self.endpoint = text('endpoint', endpoint or '')
        self.region = text('region', region or '')


class CloudBucket(Volume):
    """
    A bucket of an S3 server as a directory, at the same places as a Volume. `name` is the bucket's. Files are objects:
    a file is sent when it is closed, and a changed one is sent whole.
    """

    def __init__(self, name: str, mount_path: str, config: Optional[CloudBucketConfig] = None) -> None:
        self.name = text('name', name, empty=False)
        if _BUCKET.fullmatch(name) is None:
            raise DefinitionError('name: must be the name of a bucket, not %r' % name)
        self.mount_path = text('mount_path', mount_path, empty=False)
        self.driver = None
        self.config = CloudBucketConfig() if config is None else instance('config', config, CloudBucketConfig)

    def described(self) -> Dict[str, Any]:
        config = {
            'bucketName': self.name,
            'accessKey': self.config.access_key,
            'secretKey': self.config.secret_key,
            'endpointUrl': self.config.endpoint,
            'region': self.config.region,
            'readOnly': self.config.read_only,
            'forcePathStyle': self.config.force_path_style,
        }
        return {'name': self.name, 'mountPath': self.mount_path, 'config': config}


def _secret(name: str, value: Any) -> str:
    return value.name if isinstance(value, Secret) else text(name, value or '')
