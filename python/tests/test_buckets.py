import pytest

import beta9
from longshore import CloudBucket, CloudBucketConfig, DefinitionError, Secret, endpoint


def described(**parameters):
    @endpoint(**parameters)
    def handler():
        return None

    return handler.described('app:handler', '')['volumes']


def test_a_bucket_is_described_as_published_clients_send_it():
    config = CloudBucketConfig(access_key='KEY', secret_key=Secret('OTHER'), endpoint='https://s3.example.com', read_only=True)
    assert described(volumes=[CloudBucket(name='weights', mount_path='./weights', config=config)]) == [
        {
            'name': 'weights',
            'mountPath': './weights',
            'config': {
                'bucketName': 'weights',
                'accessKey': 'KEY',
                'secretKey': 'OTHER',
                'endpointUrl': 'https://s3.example.com',
                'region': '',
                'readOnly': True,
                'forcePathStyle': False,
            },
        }
    ]
    assert beta9.CloudBucket is CloudBucket


@pytest.mark.parametrize(
    'make, says',
    [
        (lambda: CloudBucket('a/b', 'x'), 'name'),
        (lambda: CloudBucket('a..b', 'x'), 'name'),
        (lambda: CloudBucket('bucket', ''), 'mount_path'),
        (lambda: CloudBucket('bucket', 'x', {'read_only': True}), 'config'),
        (lambda: CloudBucketConfig(access_key='KEY'), 'access_key and secret_key'),
        (lambda: CloudBucketConfig(endpoint=5), 'endpoint'),
    ],
)
def test_a_wrong_value_is_named(make, says):
    with pytest.raises(DefinitionError, match=says):
        make()
