/**
 * An S3 server that checks signatures: OpenStack's Swift with its S3 front, in a container of this machine's engine.
 */
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import type { TestDocker } from './docker.ts';
import { waitFor } from './programs.ts';

/** Tag that scripts/setup/s3-image.mjs sets. */
const IMAGE = /^longshore-test-s3:/;
const PORT = 8085;

const ring = (type: string, port: number): string => `cat > ${type}-server.conf <<'X'
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = ${port}
workers = 1
user = swift
devices = /srv/node
mount_check = false
[pipeline:main]
pipeline = ${type}-server
[app:${type}-server]
use = egg:swift#${type}
X
swift-ring-builder ${type}.builder create 8 1 0
swift-ring-builder ${type}.builder add r1z1-127.0.0.1:${port}/d1 1
swift-ring-builder ${type}.builder rebalance || true
`;

const SCRIPT = `
mkdir -p /srv/node/d1 /var/cache/swift; chown -R swift:swift /srv/node /var/cache/swift; cd /etc/swift
printf '[swift-hash]\\nswift_hash_path_suffix = a\\nswift_hash_path_prefix = b\\n[storage-policy:0]\\nname = default\\ndefault = yes\\n' > swift.conf
${ring('account', 6202)}${ring('container', 6201)}${ring('object', 6200)}
cat > proxy-server.conf <<'X'
[DEFAULT]
bind_ip = 0.0.0.0
bind_port = ${PORT}
workers = 1
user = swift
[pipeline:main]
pipeline = catch_errors gatekeeper cache listing_formats bulk s3api tempauth copy slo dlo versioned_writes symlink proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:11211
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_farm_farm = SECRET .admin
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_object_versioning = true
X
for f in catch_errors gatekeeper listing_formats bulk copy slo dlo symlink; do printf '[filter:%s]\\nuse = egg:swift#%s\\n' $f $f >> proxy-server.conf; done
chown -R swift:swift /etc/swift; memcached -u nobody -l 127.0.0.1 -d
for n in account container object proxy; do swift-$n-server $n-server.conf & done
wait`;

export interface S3Server {
  readonly endpoint: string;
  readonly bucket: string;
  readonly credentials: { readonly accessKeyId: string; readonly secretAccessKey: string };
}

export async function anS3Server({ client, run }: TestDocker): Promise<S3Server> {
  const images = await client.listImages();
  const image = images.flatMap(({ RepoTags: tags }) => tags ?? []).find((tag) => IMAGE.test(tag));
  if (image === undefined) throw new Error('the image with an S3 server is missing: node scripts/setup.mjs --hosts');
  const container = await run({ Image: image, Cmd: ['sh', '-c', SCRIPT] });
  const { NetworkSettings: network } = await client.getContainer(container.id).inspect();
  const address = network.Networks['bridge']?.IPAddress;
  const endpoint = `http://${address}:${PORT}`;
  await waitFor(
    async () => (await fetch(`${endpoint}/info`).catch(() => undefined))?.status === 200,
    'the S3 server answers',
    60_000,
  );
  const credentials = { accessKeyId: 'farm:farm', secretAccessKey: 'SECRET' };
  const s3 = new S3Client({ endpoint, region: 'us-east-1', forcePathStyle: true, credentials });
  // The front answers before the stores behind it do.
  await waitFor(
    () =>
      s3.send(new CreateBucketCommand({ Bucket: 'longshore' })).then(
        () => true,
        () => false,
      ),
    'the S3 server makes a bucket',
    60_000,
  );
  s3.destroy();
  return { endpoint, bucket: 'longshore', credentials };
}
