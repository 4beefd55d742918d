import Type from 'typebox';
import type { Static } from 'typebox';

const Text = (description: string, rest: { default?: string; secret?: boolean } = {}) =>
  Type.String({ description, ...rest });
const Count = (description: string, value: number) => Type.Integer({ minimum: 1, default: value, description });
/** Most days of a retention: ten years are enough, and every database has such a date. */
const Days = (what: string, value: number) =>
  Type.Integer({ minimum: 1, maximum: 3650, default: value, description: `days for which ${what}` });

/** Every setting of the scheduler. Names are environment variables; secrets may come as `<NAME>_FILE`. */
export const SchedulerSettings = Type.Object({
  LONGSHORE_DATA_DIR: Text('where embedded stores, objects and the key file live'),
  LONGSHORE_HTTP_ADDRESS: Text('host:port of every HTTP surface', { default: '127.0.0.1:1994' }),
  LONGSHORE_HTTP_TLS_CERT: Type.Optional(
    Text(
      'PEM file of the certificate with which HTTP is HTTPS (the leaf first, then the certificates that signed it); read again when it changes',
    ),
  ),
  LONGSHORE_HTTP_TLS_KEY: Type.Optional(Text('PEM file, the key of that certificate')),
  LONGSHORE_HTTP_PLAINTEXT: Type.Union([Type.Literal('loopback'), Type.Literal('allow')], {
    default: 'loopback',
    description:
      'where HTTP without a certificate may listen; loopback: 127.0.0.1 takes the place of any other address; allow: as LONGSHORE_HTTP_ADDRESS says (docs/https.md)',
  }),
  LONGSHORE_GRPC_ADDRESS: Type.Optional(
    Text(
      'host:port for the published Python SDK and its command line, which speak gRPC (docs/clients.md); none: no port. Absent: 127.0.0.1:1993, where that port is free',
    ),
  ),
  LONGSHORE_GRPC_PLAINTEXT: Type.Union([Type.Literal('loopback'), Type.Literal('allow')], {
    default: 'loopback',
    description:
      'where gRPC may be spoken in clear; loopback: on this host alone; allow: as LONGSHORE_GRPC_ADDRESS says. With the certificate of LONGSHORE_HTTP_TLS_CERT the port takes TLS, too, which published clients speak to port 443 alone',
  }),
  LONGSHORE_EXTERNAL_GRPC_ADDRESS: Type.Optional(
    Text('host:port that clients are told for gRPC; absent: the name by which they call, and the port of the address'),
  ),
  LONGSHORE_SECRET_VALUES: Type.Union([Type.Literal('hidden'), Type.Literal('full')], {
    default: 'hidden',
    description:
      'who may read the value of a secret over gRPC, as `secret show` of the published command line does; hidden: nobody; full: full tokens, each time with an entry of the audit trail. Credentials of image registries are never shown',
  }),
  LONGSHORE_DRAIN_SECONDS: Type.Integer({
    minimum: 0,
    maximum: 3600,
    default: 60,
    description:
      'longest time that running calls go on when the scheduler stops, while new ones are refused. `longshore up` gives 10 unless it is set',
  }),
  LONGSHORE_HTTP_MAX_CONNECTIONS: Count('connections of HTTP clients at once; above it a new one is closed', 10_000),
  LONGSHORE_AGENT_ADDRESS: Text('host:port that agents dial', { default: '127.0.0.1:1995' }),
  LONGSHORE_EXTERNAL_URL: Type.Optional(Text('start of the URLs given to clients; absent: from the address')),
  LONGSHORE_EXTERNAL_AGENT_ADDRESS: Type.Optional(
    Text('host:port that machines are told to dial; absent: from the address'),
  ),
  LONGSHORE_LINK_SOCKET: Type.Optional(
    Text(
      'unix socket, in a directory of this user alone, where the agent of this machine may dial, too; `longshore up` sets it',
    ),
  ),
  LONGSHORE_INVOKE_DOMAIN: Type.Optional(Text('domain of host-form invoke URLs')),
  DATABASE_URL: Type.Optional(Text('postgres://…; absent: embedded', { secret: true })),
  LONGSHORE_DATABASE_CONNECTIONS: Count(
    'connections of this scheduler to the Postgres of DATABASE_URL, for the platform itself',
    10,
  ),
  LONGSHORE_DATABASE_READ_CONNECTIONS: Count(
    'connections beside them for the lists and pages of logs that people read; a workspace has at most half',
    4,
  ),
  REDIS_URL: Type.Optional(Text('redis://… or redis+sentinel://…; absent: a private child', { secret: true })),
  LONGSHORE_REDIS_SOCKET: Type.Optional(Text('socket of a Redis that a supervisor started')),
  LONGSHORE_REDIS_MAX_BYTES: Type.Optional(
    Type.Integer({
      minimum: 64 * 1024 ** 2,
      description:
        "memory that the Redis of Longshore's own may take; absent: a quarter of the machine's, from 256 MiB to 8 GiB. Asynchronous tasks are refused when 85 % of it are used, synchronous ones at 95 %. A Redis that REDIS_URL names has its own `maxmemory`",
    }),
  ),
  LONGSHORE_REDIS_PREFIX: Text('prefix of every Redis key', { default: 'ls' }),
  LONGSHORE_SECRET_KEY_FILE: Type.Optional(
    Text('32 bytes that seal secrets at rest; absent: made in the data directory'),
  ),
  LONGSHORE_SECRET_KEY_FILE_PREVIOUS: Type.Optional(
    Text(
      'key file that still opens secrets which the other does not open. Secrets that it sealed are sealed anew at the start. For changing the key file; with several schedulers first given to all of them',
    ),
  ),
  LONGSHORE_BOOTSTRAP_TOKEN: Type.Optional(Text('lets a caller elsewhere make the first workspace', { secret: true })),
  LONGSHORE_METRICS_TOKEN: Type.Optional(Text('bearer that may read /metrics from elsewhere', { secret: true })),
  LONGSHORE_RATE_LIMITS: Type.Union([Type.Literal('on'), Type.Literal('off')], {
    default: 'on',
    description: 'off: nobody is told to wait for sending too much too fast; for tests',
  }),
  LONGSHORE_HTTP_ORIGINS: Type.Optional(
    Text(
      'origins of web pages that may call the API, such as https://dash.example.org, with commas between them; *: any. Absent: none',
    ),
  ),
  LONGSHORE_CONSOLE: Type.Union([Type.Literal('on'), Type.Literal('off')], {
    default: 'on',
    description: 'off: no web console below /console/',
  }),
  LONGSHORE_CONSOLE_URL: Type.Optional(
    Text(
      'address of the web console alone, such as https://console.example.org: nothing else answers there, and the console answers nowhere else. Absent: it is below /console/ of the scheduler',
    ),
  ),
  LONGSHORE_TRUSTED_PROXIES: Type.Optional(
    Text(
      'addresses or ranges of proxies in front, with commas between them: refused tokens are counted for the address in their X-Forwarded-For',
    ),
  ),
  LONGSHORE_MAX_OBJECT_BYTES: Count('largest code archive', 4 * 1024 ** 3),
  LONGSHORE_OBJECTS_BUCKET: Type.Optional(
    Text(
      'bucket of an S3-compatible store that keeps objects (archives, large inputs and results); absent: `objects` in the data directory, which several schedulers must share',
    ),
  ),
  LONGSHORE_OBJECTS_ENDPOINT: Type.Optional(
    Text('address of the store, as clients reach it, too: they upload there; absent: AWS, by the region'),
  ),
  LONGSHORE_OBJECTS_REGION: Text('region that requests to the store are signed for', { default: 'us-east-1' }),
  LONGSHORE_OBJECTS_PATH_STYLE: Type.Boolean({
    default: false,
    description: "the bucket is in the path of the store's addresses instead of the host's name",
  }),
  LONGSHORE_OBJECTS_PREFIX: Type.String({
    default: '',
    pattern: '^([A-Za-z0-9._-]+/)*$',
    description: 'before every key in the bucket, such as `team/`',
  }),
  LONGSHORE_OBJECTS_ACCESS_KEY_ID: Type.Optional(
    Text("key id for the store; absent: from AWS's own variables, files or a role of the machine", {
      secret: true,
    }),
  ),
  LONGSHORE_OBJECTS_SECRET_ACCESS_KEY: Type.Optional(Text('the secret of that key', { secret: true })),
  LONGSHORE_OBJECT_GRACE_HOURS: Type.Integer({
    minimum: 25,
    maximum: 87_600,
    default: 72,
    description:
      'an uploaded archive that no stub names is deleted when nobody has uploaded or asked for it for so long. The time must be longer than an upload address lives (24 hours)',
  }),
  LONGSHORE_MAX_INVOKE_BODY_BYTES: Count('largest body of a JSON invocation', 16 * 1024 ** 2),
  LONGSHORE_MAX_RESULT_BYTES: Count('largest result of a task', 64 * 1024 ** 2),
  LONGSHORE_MAX_CONTAINERS: Count('most containers of one deployment', 100),
  LONGSHORE_START_TIMEOUT_SECONDS: Type.Integer({
    minimum: 1,
    maximum: 86_400,
    default: 900,
    description:
      'seconds from the creation of a container until it must be ready, where its stub does not say (`start_timeout`). Counts for stubs that are made from then on',
  }),
  LONGSHORE_START_TIMEOUT_MOST_SECONDS: Type.Integer({
    minimum: 1,
    maximum: 86_400,
    default: 7_200,
    description:
      'longest `start_timeout` that a stub may name; LONGSHORE_START_TIMEOUT_SECONDS wins where it is larger',
  }),
  LONGSHORE_RESTART_GRACE_SECONDS: Type.Integer({
    minimum: 0,
    maximum: 3600,
    default: 120,
    description:
      'time after a start in which no machine is given up as lost. In this time no container found running is stopped for want of work',
  }),
  LONGSHORE_MACHINE_LOST_SECONDS: Type.Integer({
    minimum: 5,
    maximum: 3600,
    default: 90,
    description:
      'a machine that is silent for so long is given up as lost, and its containers are replaced elsewhere. The time is twice as long when its agent said that it only restarts',
  }),
  LONGSHORE_POOLS_FILE: Type.Optional(
    Text(
      'JSON file that declares shared pools with their settings (docs/pools.md); read at the start and at SIGHUP. With several schedulers all have the same file, at the same path',
    ),
  ),
  LONGSHORE_SHARING_ORDER: Type.Union([Type.Literal('share'), Type.Literal('arrival')], {
    default: 'share',
    description:
      'who gets a free machine: the workspace with the smallest share of them, or the container that waits longest. `longshore settings set sharing_order` changes it while schedulers run (docs/sharing.md)',
  }),
  LONGSHORE_RESERVE_AFTER: Text(
    'seconds after which a machine is reserved for a container that needs several GPUs, or half a machine; off: never. `longshore settings set reserve_after` changes it while schedulers run (docs/sharing.md)',
    { default: '60' },
  ),
  LONGSHORE_RECLAIM_AFTER: Text(
    'seconds after which interruptible containers end for one whose workspace has less than its guarantee; off: never. `longshore settings set reclaim_after` changes it while schedulers run (docs/sharing.md)',
    { default: '5' },
  ),
  LONGSHORE_RECLAIM_NOTICE: Text(
    'seconds that tasks of an interruptible container have, before they are given back (0 to 120). `longshore settings set reclaim_notice` changes it while schedulers run',
    { default: '20' },
  ),
  LONGSHORE_RECLAIM_MIN_RUN: Text(
    'seconds that an interruptible container has run at least, unless a guarantee asks for its place. `longshore settings set reclaim_min_run` changes it while schedulers run',
    { default: '600' },
  ),
  LONGSHORE_PROVIDERS_FILE: Type.Optional(
    Text(
      'JSON file that names the programs by which machines are made for pools (docs/providers.md); read at the start and at SIGHUP. With several schedulers all have the same file, and the programs',
    ),
  ),
  LONGSHORE_CPU_WORK_ON_GPU_POOLS: Text(
    'pools, with commas between them, whose GPU machines take work without a GPU too; *: all; for pools whose own settings say nothing of it',
    { default: 'default' },
  ),
  LONGSHORE_VOLUME_DRIVER: Type.Union(
    [Type.Literal('local'), Type.Literal('shared'), Type.Literal('nfs'), Type.Literal('s3')],
    {
      default: 'local',
      description:
        'where a new volume keeps its files: local (one machine, where its containers then run), shared (LONGSHORE_SHARED_VOLUMES_DIR), nfs (LONGSHORE_NFS_VOLUMES) or s3 (LONGSHORE_S3_VOLUMES of the mount helper)',
    },
  ),
  LONGSHORE_RELEASES_DIR: Type.Optional(
    Text(
      'directory of the releases that machines install from; absent: `releases` in the data directory, else the releases that `npm run build` made in this checkout',
    ),
  ),
  LONGSHORE_RELEASE_CHANNEL: Type.String({
    default: 'stable',
    pattern: '^[a-z0-9][a-z0-9-]{0,31}$',
    description: 'the channel that new machines install from',
  }),
  LONGSHORE_IMAGE_DAYS: Type.Integer({
    default: 30,
    minimum: 1,
    maximum: 3650,
    description: 'days after which a built image that no deployment has and nobody asked for is removed',
  }),
  LONGSHORE_REGISTRY: Type.Optional(
    Type.String({
      secret: true,
      pattern: '^(unix:///|https?://)',
      description:
        'registry for images that Longshore builds, as this scheduler reaches it: unix:///path or http(s)://[user:password@]host:port. Nobody else needs to reach it: machines pull and push through the scheduler. `longshore up --registry` starts one; absent: an image stays on the machine that built it (docs/images.md)',
    }),
  ),
  LONGSHORE_REGISTRY_PROGRAM: Text(
    "the distribution project's registry, which `longshore registry serve` and `longshore up --registry` run",
    { default: 'docker-registry' },
  ),
  LONGSHORE_REGISTRY_CONFIG: Type.Optional(
    Text(
      "file with credentials of image registries, as Docker's config.json has them; machines get those of one registry for one pull. An entry is for every workspace and repository, unless it lists `workspaces` (ids) or `repositories` (team/app, team/*)",
    ),
  ),
  LONGSHORE_IMAGE_PULLS: Type.Integer({
    minimum: 1,
    maximum: 10_000,
    default: 8,
    description:
      'machines that pull one image at once before the first of them has it; the others wait in line. Each machine that has it lets one more pull (docs/images.md)',
  }),
  LONGSHORE_IMAGE_PULLS_MOST: Type.Integer({
    minimum: 1,
    maximum: 10_000,
    default: 64,
    description: 'bound on the machines that pull one image at once; LONGSHORE_IMAGE_PULLS wins where it is larger',
  }),
  LONGSHORE_WEBHOOK_ALLOW: Text(
    'networks, with commas between them, that callbacks and events may be sent to although they are not public, such as 10.1.0.0/16. Hosts in these networks must be meant for every workspace',
    { default: '' },
  ),
  LONGSHORE_TASK_DAYS: Days('a task that ended is kept, with its result', 30),
  LONGSHORE_INPUT_DAYS: Days('the input of a task that ended is kept, though not longer than the task', 7),
  LONGSHORE_INPUT_BYTES: Count('largest input of a task that is kept after its end', 1024 ** 2),
  LONGSHORE_WORKSPACE_INPUT_BYTES: Count(
    'bound on the kept inputs of a workspace: beyond it the oldest are deleted',
    256 * 1024 ** 2,
  ),
  LONGSHORE_CONTAINER_DAYS: Days('the record of a container that ended is kept', 30),
  LONGSHORE_LOG_DAYS: Days('a line that a container printed is kept', 30),
  LONGSHORE_EVENT_DAYS: Days('an event is kept', 30),
  LONGSHORE_DELIVERY_DAYS: Days('the outcome of a callback, or of a delivery of a webhook, is kept', 7),
  LONGSHORE_EXPORT_OTLP: Type.Optional(
    Type.String({
      pattern: '^https?://[^\\s/]+(/\\S*)?$',
      description:
        'http(s) address of an OpenTelemetry collector that gets events and log lines by OTLP (docs/exports.md)',
    }),
  ),
  LONGSHORE_EXPORT_OTLP_HEADERS: Type.Optional(
    Type.String({
      pattern: '^[^=,\\s]+=[^,]*(,\\s*[^=,\\s]+=[^,]*)*$',
      secret: true,
      description: 'headers of these requests, name=value pairs parted by commas, such as a credential',
    }),
  ),
  LONGSHORE_EXPORT_FILE: Type.Optional(
    Text('file that gets events and log lines, a JSON object in each line (docs/exports.md)'),
  ),
  LONGSHORE_EXPORT_FILE_MIB: Type.Integer({
    minimum: 1,
    maximum: 1024 ** 2,
    default: 100,
    description: 'MiB from which a new file is begun; five files are kept',
  }),
  LONGSHORE_EXPORT_KINDS: Type.Union([Type.Literal('all'), Type.Literal('events'), Type.Literal('logs')], {
    default: 'all',
    description: 'rows that are exported: events, logs, or all of both',
  }),
  LONGSHORE_METRIC_DAYS: Days('metrics of containers and pools are kept, by the minute and the hour', 8),
  LONGSHORE_METRIC_SAMPLE_HOURS: Type.Integer({
    minimum: 1,
    maximum: 24 * 31,
    default: 6,
    description: 'hours for which single samples of containers and pools are kept, one in five seconds',
  }),
  LONGSHORE_LOG_LEVEL: Type.Union(
    [
      Type.Literal('trace'),
      Type.Literal('debug'),
      Type.Literal('info'),
      Type.Literal('warn'),
      Type.Literal('error'),
      Type.Literal('fatal'),
      Type.Literal('silent'),
    ],
    { default: 'info', description: 'least severe lines that are written' },
  ),
});
export type SchedulerSettings = Readonly<Static<typeof SchedulerSettings>>;
