// Calls of published clients that are refused with a text: what they ask for is not there. An answer `ok: false` can be
// read, where the status of a call that is not served is printed without a word.

/** Who sends several messages. */
export type RpcType = 'unary' | 'serverStream' | 'clientStream';

export interface RefusedCall {
  /** `/shell.ShellService/CreateStandaloneShell` */
  readonly path: string;
  readonly type: RpcType;
  /** Why. */
  readonly text: string;
  /** Number of the text's field in the answer; undefined: the answer has `ok` alone. */
  readonly field: number | undefined;
}

const NO_SHELL = 'shells over SSH are not there: `longshore container exec -it CONTAINER -- sh` opens one';
const NO_DISKS = 'durable disks are not there: use a volume, which keeps files as well';
const NO_BOTS = 'bots are not there';
const NO_ENDPOINTS = 'managed endpoints are not there: deploy an endpoint, or a model server for /v1';
const NO_CAPACITY =
  'machines are not rented by this call: an administrator sets up providers, and pools grow by themselves (docs/providers.md)';
const NO_AGENTS = 'machines join by the agent of Longshore: `pool join NAME --print-only` shows the command';
const NO_SSH = 'machines have no SSH keys of ours: containers are reached by `longshore container exec`';
const NO_USAGE = 'usage of endpoints is told by `longshore stats` and by /metrics';
const NO_RUNNER = 'containers are served by the runner that the platform brings: remove the entrypoint `beta9.runner`';
const NO_PARTS = 'objects are uploaded by HTTP: PUT all bytes to the address that CreateObject gave';
const NO_STREAM =
  'files of volumes go by HTTP: `beta9 cp` asks for their addresses, and `longshore volume cp` copies too';

/** Service, text, and its calls: name, number of the text's field, and the type where it is not unary. */
const ROWS: readonly (readonly [service: string, text: string, calls: string])[] = [
  ['bot.BotService', NO_BOTS, 'PopBotTask; PushBotMarkers; PushBotEvent; PushBotEventBlocking'],
  ['disk.DiskService', NO_DISKS, 'GetOrCreateDisk 2; DeleteDisk 2'],
  ['function.FunctionService', NO_RUNNER, 'FunctionGetArgs; FunctionSetResult; FunctionMonitor serverStream'],
  ['gateway.GatewayService', NO_RUNNER, 'StartTask; EndTask'],
  ['gateway.GatewayService', NO_PARTS, 'PutObjectStream 3 clientStream'],
  [
    'gateway.GatewayService',
    NO_CAPACITY,
    'LaunchPoolCapacity 2; ExtendPoolCapacity 2; CreateBYOCPool 2; GetBYOCPool 2; ScaleBYOCPool 2; GetProviderJoinCommand 2; ListProviderMachines 2',
  ],
  ['gateway.GatewayService', NO_USAGE, 'GetEndpointUsage 2; ListMachineContainers 2'],
  ['gateway.GatewayService', NO_SSH, 'DownloadMachineSSHKey 2; RotateMachineSSHKey 2; ActivateMachineSSHKey 2'],
  [
    'gateway.GatewayService',
    NO_AGENTS,
    'CreatePoolJoinToken 2; RevokePoolJoinToken 2; JoinAgent 2; RequestAgentTransportCredential 2; GetAgentPoolVirtualization 2; CreateNodeEnrollment 2; DeleteNodeEnrollment 2; ListAgentRoutes 2; UpdateAgentRouteStatus 2; UpdateAgentSSHStatus 2; UpdateAgentAvailability 2; StreamAgent 2 serverStream; StreamAgentTelemetry 2 clientStream',
  ],
  [
    'managedendpoint.EndpointAdminService',
    NO_ENDPOINTS,
    'ListEndpoints 2; GetEndpoint 2; ListReplicas 2; GetMetrics 2; SetReplicaConfig 2; StopReplica 2; GetGitOpsStatus 2; ApplyRepo 2',
  ],
  [
    'managedendpoint.EndpointHarnessService',
    NO_ENDPOINTS,
    'Register 2; WatchConfig 7 serverStream; AckConfig 2; Heartbeat 2; PublishEvents 2',
  ],
  ['shell.ShellService', NO_SHELL, 'CreateStandaloneShell 5; CreateShellInExistingContainer 5'],
  ['taskqueue.TaskQueueService', NO_RUNNER, 'TaskQueuePop; TaskQueueMonitor serverStream; TaskQueueComplete 2'],
  ['volume.VolumeService', NO_STREAM, 'CopyPathStream 3 clientStream'],
];

export const REFUSED_CALLS: readonly RefusedCall[] = ROWS.flatMap(([service, text, calls]) =>
  calls.split('; ').map((call) => {
    const [name = '', ...rest] = call.split(' ');
    const field = rest.find((word) => /^\d+$/.test(word));
    const type = rest.find((word): word is RpcType => word.endsWith('Stream')) ?? 'unary';
    return { path: `/${service}/${name}`, type, text, field: field === undefined ? undefined : Number(field) };
  }),
);

/** The answer: `ok` is left out, since false is its zero. */
export function refusalBytes({ field, text }: Pick<RefusedCall, 'field' | 'text'>): Buffer {
  if (field === undefined) return Buffer.alloc(0);
  const bytes = Buffer.from(text, 'utf8');
  // A text is a field of wire type 2: its tag, its length and its bytes.
  return Buffer.concat([Buffer.from([(field << 3) | 2]), varint(bytes.length), bytes]);
}

function varint(value: number): Buffer {
  const out: number[] = [];
  let rest = value;
  while (rest > 0x7f) {
    out.push((rest & 0x7f) | 0x80);
    rest >>>= 7;
  }
  return Buffer.from([...out, rest]);
}
