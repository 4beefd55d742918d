import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Rollout } from './deployments.ts';
import { Anything, Exact, Flag, Float, Int64, Text, Uint32, beyondDocument, nullable } from './fields.ts';

export const WarmTime = Type.Object(
  {
    when: Text({ description: 'cron expression, as of a schedule: from each tick on' }),
    timezone: Text({ description: 'of both times; empty: UTC' }),
    min: Uint32(),
    until: Text({ description: 'time of day, such as 18:00' }),
  },
  { description: 'so many containers run without work from each tick until the time of day' },
);

export const Autoscaler = Type.Object({
  type: Text({ description: 'queue_depth or llm_token_pressure; empty: the default' }),
  maxContainers: Uint32(),
  tasksPerContainer: Uint32(),
  minContainers: Uint32(),
  windowSeconds: Type.Optional(
    Uint32({ description: 'a container goes only when none of the last so many seconds asked for it; absent: 0' }),
  ),
  scaleInPerMinute: Type.Optional(
    Uint32({ description: 'most containers that end in a minute for want of work; absent or 0: no bound' }),
  ),
  warm: Type.Optional(Type.Array(WarmTime, { description: 'at most 16; the largest counts, with minContainers' })),
});
export type Autoscaler = Static<typeof Autoscaler>;

export const TaskPolicy = Type.Object({ timeout: Int64(), maxRetries: Uint32(), ttl: Uint32() });
export type TaskPolicy = Static<typeof TaskPolicy>;

export const SecretName = Type.Object({ name: Text() });

export const StubBucketConfig = Type.Object(
  {
    bucketName: Text(),
    accessKey: Text({ description: 'name of the secret with the access key; empty: the bucket is public' }),
    secretKey: Text({ description: 'name of the secret with the secret key' }),
    endpointUrl: Text({ description: "URL of its server; empty: Amazon's" }),
    region: Text(),
    readOnly: Flag(),
    forcePathStyle: Flag({ description: "the bucket's name is in the path of requests" }),
  },
  { description: 'a bucket in the place of a volume, which has no id then' },
);
export type StubBucketConfig = Static<typeof StubBucketConfig>;

export const StubVolume = Type.Object({
  id: Text(),
  mountPath: Text({ description: 'relative: below /volumes and /mnt/code; absolute: there, and below /volumes' }),
  config: nullable(StubBucketConfig),
});
export type StubVolume = Static<typeof StubVolume>;

export const ReadinessProbe = Type.Object(
  {
    type: Text({ description: 'http, tcp or command; empty: http with a path, command with a command, else tcp' }),
    port: Uint32({ description: 'of http and tcp; 0: the first of ports' }),
    path: Text({ description: 'of http; a status from 200 to 399 is ready; empty: /' }),
    command: Type.Array(Text(), { description: 'of command; exit code 0 is ready' }),
    intervalSeconds: Float({ description: 'between tries; 0: 1' }),
    timeoutSeconds: Float({ description: 'of a try; 0: 5' }),
  },
  { description: 'tells when a pod takes calls; absent: once its first port takes connections' },
);
export type ReadinessProbe = Static<typeof ReadinessProbe>;

export const GetOrCreateStubRequest = Type.Object({
  objectId: Text(),
  imageId: Text(),
  stubType: Text(),
  name: Text(),
  pythonVersion: Text(),
  cpu: Type.Optional(Int64({ description: 'millicores; absent: 1000' })),
  memory: Type.Optional(Int64({ description: 'MiB; absent: 128' })),
  gpu: Text({
    description:
      'models in order of preference, separated by `,` or `|`; each may have conditions, such as `any:>=40GiB:cc>=8.9`',
  }),
  handler: Text({ description: 'module:function' }),
  retries: Uint32(),
  timeout: Int64({ description: 'seconds' }),
  keepWarmSeconds: Type.Optional(Float()),
  workers: Uint32(),
  maxPendingTasks: Uint32(),
  volumes: Type.Array(StubVolume),
  forceCreate: Flag(),
  onStart: Text(),
  callbackUrl: Text(),
  authorized: Type.Optional(Flag({ description: 'only an explicit false makes the stub public' })),
  secrets: Type.Array(SecretName),
  autoscaler: nullable(Autoscaler),
  taskPolicy: nullable(TaskPolicy),
  concurrentRequests: Uint32(),
  extra: Text({ description: 'a JSON object as text' }),
  checkpointEnabled: Flag(),
  gpuCount: Uint32(),
  onDeploy: Text(),
  onDeployStubId: Text(),
  entrypoint: Type.Array(Text(), {
    description: "of pods and sandboxes: program and arguments; empty: the image's own",
  }),
  ports: Type.Array(Uint32(), { description: 'of pods and sandboxes: ports on which the program listens, at most 20' }),
  readinessProbe: nullable(ReadinessProbe),
  env: Type.Array(Text({ description: 'KEY=VALUE' })),
  appName: Text(),
  pricing: nullable(Exact()),
  inputs: nullable(Exact()),
  outputs: nullable(Exact()),
  tcp: Flag(),
  blockNetwork: Flag(),
  allowList: Type.Array(Text()),
  dockerEnabled: Flag(),
  pool: nullable(Exact()),
  isService: Flag(),
  serving: nullable(
    Exact({ description: 'of model servers: serving_protocol (openai) and llm: context_length, cache_tokens, …' }),
  ),
  disks: nullable(Exact(Type.Array(Anything()))),
  allowMarketplace: Flag(),
  checkpointTrigger: nullable(Exact()),
  hostname: Text(),
  persistentRoot: nullable(Exact()),
});
export type GetOrCreateStubRequest = Static<typeof GetOrCreateStubRequest>;

export const GetOrCreateStubResponse = Type.Object({
  ok: Flag(),
  stubId: Text(),
  errMsg: Text(),
  warnMsg: Text(),
  capacityStatus: Text(),
  unsupportedGpus: Type.Array(Text()),
  matchedPrivatePool: Text(),
});
export type GetOrCreateStubResponse = Static<typeof GetOrCreateStubResponse>;

/** As GetOrCreateStub's; ids of the object, volumes and a built image are not looked up. */
export const CheckStubRequest = Type.Object({
  ...GetOrCreateStubRequest.properties,
  builtFrom: Text({
    description: 'an image that a deploy builds, or starts to build from, in place of the base image; empty: none',
  }),
});
export type CheckStubRequest = Static<typeof CheckStubRequest>;

export const StubProblem = Type.Object({
  field: Text({ description: 'secrets, gpu, pool, pythonVersion or callbackUrl; empty: the text says it' }),
  value: Text({ description: 'the name that nothing has' }),
  text: Text(),
});

export const CheckStubResponse = Type.Object({
  ok: Flag(),
  errMsg: Text(),
  problems: Type.Array(StubProblem, { description: 'reasons why it would be refused, or never run' }),
  warnings: Type.Array(Text()),
  config: nullable(Anything()),
});
export type CheckStubResponse = Static<typeof CheckStubResponse>;

export const DeployStubRequest = Type.Object({
  stubId: Text(),
  name: Text(),
  rollout: Text({
    description:
      'now: calls of the name reach the new version at once; anything else: as soon as it has a ready container, where an older version has one',
  }),
});
export type DeployStubRequest = Static<typeof DeployStubRequest>;

export const DeployStubResponse = Type.Object({
  ok: Flag(),
  errMsg: beyondDocument(Text({ description: 'why it was refused; without these fields: header X-Longshore-Error' })),
  warnMsg: beyondDocument(Text({ description: 'deployed, and what may go wrong all the same' })),
  deploymentId: Text(),
  version: Uint32(),
  invokeUrl: Text(),
  rollout: beyondDocument(nullable(Rollout)),
});
export type DeployStubResponse = Static<typeof DeployStubResponse>;

export const StartServeRequest = Type.Object({
  stubId: Text(),
  timeout: Uint32({ description: 'seconds of the lease, 10 to 600; 0: 60. A client renews it by calling again' }),
});
export type StartServeRequest = Static<typeof StartServeRequest>;

export const StartServeResponse = Type.Object({
  ok: Flag(),
  errMsg: Text(),
  containerId: Text({ description: 'empty: it is being made' }),
  state: Text({ description: 'state of that container' }),
  leaseSeconds: Uint32(),
});
export type StartServeResponse = Static<typeof StartServeResponse>;

export const EndServeRequest = Type.Object({ stubId: Text() });
export type EndServeRequest = Static<typeof EndServeRequest>;

export const EndServeResponse = Type.Object({ ok: Flag(), errMsg: Text() });
export type EndServeResponse = Static<typeof EndServeResponse>;

export const GetUrlRequest = Type.Object({
  stubId: Text(),
  deploymentId: Text(),
  urlType: Text({ description: 'path or host; anything else acts as path' }),
  isShell: Flag(),
});
export type GetUrlRequest = Static<typeof GetUrlRequest>;

export const GetUrlResponse = Type.Object({ ok: Flag(), errMsg: Text(), url: Text() });
export type GetUrlResponse = Static<typeof GetUrlResponse>;
