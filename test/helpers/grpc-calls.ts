/** Every call that is served over gRPC, for tests that try all of them. A test compares the list with the server's. */

interface Ids {
  readonly deployment: string;
  readonly stub: string;
  readonly nobody: string;
}

export interface GrpcCall {
  /** `gateway.GatewayService/ListTasks` */
  readonly path: string;
  readonly isStream: boolean;
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

export const GATEWAY_RPCS: readonly GrpcCall[] = [
  gateway('Authorize'),
  gateway('SignPayload'),
  gateway('HeadObject'),
  gateway('CreateObject'),
  gateway('CompleteObjectUpload'),
  gateway('CreateObjectDelta'),
  gateway('CommitObjectDelta'),
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
    message: ({ nobody }) => ({ taskIds: [nobody] }),
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
    message: ({ nobody: tokenId }) => ({ tokenId }),
    answer: { ok: false, err_msg: 'Unable to toggle token.' },
  }),
  gateway('DeleteToken'),
  gateway('ListWorkers'),
  ...['CordonWorker', 'UncordonWorker', 'DrainWorker'].map((name) =>
    gateway(name, { what: 'worker', message: ({ nobody: workerId }) => ({ workerId }), answer: { ok: false } }),
  ),
  gateway('ListMachines'),
  gateway('CreateMachine'),
  gateway('DeleteMachine', {
    what: 'machine',
    message: ({ nobody: machineId }) => ({ machineId }),
    answer: { ok: false, err_msg: 'machine not found' },
  }),
  gateway('ListPools'),
  gateway('ListPrivatePools'),
  gateway('ListPoolOffers'),
  gateway('ExportWorkspaceConfig'),
  unary('image.ImageService/VerifyImageBuild'),
  { path: 'image.ImageService/BuildImage', isStream: true },
  unary('volume.VolumeService/GetOrCreateVolume'),

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
