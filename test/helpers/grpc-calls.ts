/** Every call that is served over gRPC, for tests that try all of them. A test compares the list with the server's. */

/** Ids of things that one workspace has, and the names of those that are named. */
export interface Ids {
  readonly deployment: string;
  readonly stub: string;
  readonly task: string;
  readonly object: string;
  readonly token: string;
  readonly machine: string;
  readonly pool: string;
  readonly volume: string;
  readonly secret: string;
  /** An id of what no test makes. */
  readonly nobody: string;
}

export interface GrpcCall {
  /** `gateway.GatewayService/ListTasks` */
  readonly path: string;
  readonly isStream: boolean;
  /** The request comes in messages, too. */
  readonly isDuplex?: boolean;
  /** A request that names what another workspace has, and its answer; absent: the request names nothing. */
  readonly foreign?: {
    readonly what: string;
    readonly message: (ids: Ids) => Readonly<Record<string, unknown>>;
    readonly answer: Readonly<Record<string, unknown>>;
  };
}

const unary = (path: string, foreign?: GrpcCall['foreign']): GrpcCall => ({
  path,
  isStream: false,
  ...(foreign === undefined ? {} : { foreign }),
});
const gateway = (name: string, foreign?: GrpcCall['foreign']): GrpcCall =>
  unary(`gateway.GatewayService/${name}`, foreign);

const notFound = { ok: false, err_msg: 'Deployment not found' };
const byDeployment = { what: 'deployment', message: ({ deployment: id }: Ids) => ({ id }), answer: notFound };

const noVolume = { ok: false, err_msg: 'the workspace has no volume of that name' };
const noSecret = { ok: false, err_msg: 'there is no secret of that name: `longshore secret list` shows them' };

export const GATEWAY_RPCS: readonly GrpcCall[] = [
  gateway('Authorize'),
  gateway('SignPayload'),
  gateway('HeadObject'),
  gateway('CreateObject'),
  gateway('CompleteObjectUpload'),
  gateway('CreateObjectDelta', {
    what: 'object',
    message: ({ object: baseObjectId }) => ({ hash: 'a', baseObjectId }),
    answer: { ok: false, base_missing: true },
  }),
  gateway('CommitObjectDelta', {
    what: 'object',
    message: ({ object: objectId }) => ({ objectId, baseObjectId: objectId }),
    answer: { ok: false, error_msg: 'object_id names no change of that base' },
  }),
  gateway('GetOrCreateStub'),
  gateway('DeployStub', {
    what: 'stub',
    message: ({ stub: stubId }) => ({ stubId, name: 'mine' }),
    answer: { ok: false, err_msg: 'stub not found' },
  }),
  gateway('GetURL', {
    what: 'stub',
    message: ({ stub: stubId }) => ({ stubId }),
    answer: { ok: false, err_msg: 'Invalid stub ID' },
  }),
  gateway('ListDeployments', {
    what: 'deployment',
    message: ({ deployment }) => ({ filters: { id: { values: [deployment] } } }),
    answer: { ok: true, deployments: [] },
  }),
  gateway('StartDeployment', byDeployment),
  gateway('StopDeployment', byDeployment),
  gateway('ScaleDeployment', {
    what: 'deployment',
    message: ({ deployment: id }) => ({ id, containers: 1 }),
    answer: notFound,
  }),
  gateway('DeleteDeployment', byDeployment),
  gateway('ListTasks', {
    what: 'stub',
    message: ({ stub }) => ({ filters: { 'stub-id': { values: [stub] } } }),
    answer: { ok: true, tasks: [] },
  }),
  gateway('StopTasks', {
    what: 'task',
    message: ({ task }) => ({ taskIds: [task] }),
    answer: { ok: false, err_msg: 'Task not found' },
  }),
  gateway('ListContainers'),
  gateway('StopContainer', {
    what: 'container',
    message: ({ nobody: containerId }) => ({ containerId }),
    answer: { ok: false },
  }),
  gateway('CheckpointContainer', {
    what: 'container',
    message: ({ nobody: containerId }) => ({ containerId }),
    answer: { ok: false },
  }),
  gateway('ListTokens'),
  gateway('CreateToken'),
  gateway('ToggleToken', {
    what: 'token',
    message: ({ token: tokenId }) => ({ tokenId }),
    answer: { ok: false, err_msg: 'Unable to toggle token.' },
  }),
  // A token that is not there counts as deleted.
  gateway('DeleteToken', {
    what: 'token',
    message: ({ token: tokenId }) => ({ tokenId }),
    answer: { ok: true },
  }),
  gateway('ListWorkers'),
  ...['CordonWorker', 'UncordonWorker', 'DrainWorker'].map((name) =>
    gateway(name, { what: 'worker', message: ({ machine: workerId }) => ({ workerId }), answer: { ok: false } }),
  ),
  gateway('ListMachines', {
    what: 'pool',
    message: ({ pool: poolName }) => ({ poolName }),
    answer: { ok: false, machines: [] },
  }),
  gateway('CreateMachine'),
  gateway('DeleteMachine', {
    what: 'machine',
    message: ({ machine: machineId, pool: poolName }) => ({ machineId, poolName }),
    answer: { ok: false, err_msg: 'machine not found' },
  }),
  gateway('ListPools'),
  gateway('ListPrivatePools'),
  gateway('CreatePool'),
  gateway('DeletePool', { what: 'pool', message: ({ pool: name }) => ({ name }), answer: { ok: false } }),
  gateway('GetPoolJoinCommand', {
    what: 'pool',
    message: ({ pool: poolName }) => ({ poolName }),
    answer: { ok: false, command: '', token: '' },
  }),
  gateway('ListPoolMachines', {
    what: 'pool',
    message: ({ pool: poolName }) => ({ poolName }),
    answer: { ok: false, machines: [] },
  }),
  gateway('ListPoolOffers'),
  gateway('ExportWorkspaceConfig'),
  unary('image.ImageService/VerifyImageBuild'),
  { path: 'image.ImageService/BuildImage', isStream: true },
  unary('volume.VolumeService/GetOrCreateVolume'),
  unary('volume.VolumeService/ListVolumes'),
  unary('volume.VolumeService/GetFileServiceInfo'),
  ...['ListPath', 'StatPath', 'DeletePath'].map((name) =>
    unary(`volume.VolumeService/${name}`, {
      what: 'volume',
      message: ({ volume }) => ({ path: `${volume}/a.txt` }),
      answer: noVolume,
    }),
  ),
  unary('volume.VolumeService/DeleteVolume', {
    what: 'volume',
    message: ({ volume: name }) => ({ name }),
    answer: noVolume,
  }),
  unary('volume.VolumeService/MovePath', {
    what: 'volume',
    message: ({ volume }) => ({ originalPath: `${volume}/a`, newPath: `${volume}/b` }),
    answer: noVolume,
  }),
  ...['CreatePresignedURL', 'CreateMultipartUpload', 'CompleteMultipartUpload', 'AbortMultipartUpload'].map((name) =>
    unary(`volume.VolumeService/${name}`, {
      what: 'volume',
      message: ({ volume: volumeName }) => ({
        volumeName,
        volumePath: 'a.txt',
        uploadId: '0123456789abcdef.10.4',
        chunkSize: '4',
        fileSize: '10',
      }),
      answer: noVolume,
    }),
  ),

  unary('secret.SecretService/CreateSecret'),
  unary('secret.SecretService/ListSecrets'),
  unary('secret.SecretService/UpdateSecret', {
    what: 'secret',
    message: ({ secret: name }) => ({ name, value: 'theirs' }),
    answer: noSecret,
  }),
  unary('secret.SecretService/DeleteSecret', {
    what: 'secret',
    message: ({ secret: name }) => ({ name }),
    answer: noSecret,
  }),
  unary('secret.SecretService/GetSecret', {
    what: 'secret',
    message: ({ secret: name }) => ({ name }),
    answer: noSecret,
  }),

  unary('disk.DiskService/ListDisks'),
  unary('disk.DiskService/ListDiskSnapshots'),

  { path: 'gateway.GatewayService/AttachToContainer', isStream: true, isDuplex: true },
  { path: 'function.FunctionService/FunctionInvoke', isStream: true },
  unary('function.FunctionService/FunctionSchedule', {
    what: 'deployment',
    message: ({ deployment: deploymentId, stub: stubId }) => ({ deploymentId, stubId, when: '@daily' }),
    answer: { ok: false, err_msg: 'Deployment not found' },
  }),
  unary('endpoint.EndpointService/StartEndpointServe', {
    what: 'stub',
    message: ({ stub: stubId }) => ({ stubId }),
    answer: { ok: false, error_msg: 'stub not found' },
  }),
  unary('taskqueue.TaskQueueService/StartTaskQueueServe', {
    what: 'stub',
    message: ({ stub: stubId }) => ({ stubId }),
    answer: { ok: false, error_msg: 'stub not found' },
  }),
  unary('taskqueue.TaskQueueService/TaskQueuePut', {
    what: 'stub',
    message: ({ stub: stubId }) => ({ stubId }),
    answer: { ok: false },
  }),
  unary('taskqueue.TaskQueueService/TaskQueueLength', {
    what: 'stub',
    message: ({ stub: stubId }) => ({ stubId }),
    answer: { ok: false, length: '0' },
  }),
];

const ofContainer = {
  what: 'container',
  message: ({ nobody: containerId }: Ids) => ({
    containerId,
    command: 'true',
    pid: 1,
    containerPath: 'a',
    pattern: 'a',
    port: 80,
    ttl: 60,
    length: 1,
  }),
  answer: { ok: false },
};

/** Calls on pods and sandboxes. */
export const POD_RPCS: readonly GrpcCall[] = [
  unary('pod.PodService/CreatePod'),
  ...[
    'Connect',
    'CreateDirectory',
    'CreateImageFromFilesystem',
    'DeleteDirectory',
    'DeleteFile',
    'DownloadFile',
    'Exec',
    'ExposePort',
    'FindInFiles',
    'Kill',
    'ListFiles',
    'ListProcesses',
    'ListUrls',
    'ReplaceInFiles',
    'SnapshotDisks',
    'SnapshotMemory',
    'StatFile',
    'Status',
    'Stderr',
    'Stdout',
    'UpdateNetworkPermissions',
    'UpdateTTL',
    'UploadFile',
  ].map((name) => unary(`pod.PodService/Sandbox${name}`, ofContainer)),
];

/** Calls on what programs and handlers of a workspace share. */
export const STATE_RPCS: readonly GrpcCall[] = [
  ...['MapSet', 'MapGet', 'MapDelete', 'MapCount', 'MapKeys'].map((name) => unary(`map.MapService/${name}`)),
  ...['Put', 'Pop', 'Peek', 'Empty', 'Size'].map((name) => unary(`simplequeue.SimpleQueueService/SimpleQueue${name}`)),
  ...['SignalSet', 'SignalClear'].map((name) => unary(`signal.SignalService/${name}`)),
  { path: 'signal.SignalService/SignalMonitor', isStream: true },
  { path: 'output.OutputService/OutputSaveStream', isStream: true, isDuplex: true },
  ...['OutputStat', 'OutputPublicURL'].map((name) => unary(`output.OutputService/${name}`)),
];

export const ALL_RPCS: readonly GrpcCall[] = [...GATEWAY_RPCS, ...POD_RPCS, ...STATE_RPCS];
