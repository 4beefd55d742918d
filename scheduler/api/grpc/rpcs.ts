// The calls that published clients make, and what serves each of them: an operation, or an answer that is always the
// same. Adapters say where the two messages differ. A call that is not listed is not served.
import { agentLine } from '#shared/join-line.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import type { Operation } from '../operations/operation.ts';
import { compileDecoder } from '../http/decode.ts';
import { compileEncoder } from '../http/encode.ts';
import type { Plain } from './descriptor.ts';

type Permission = Pick<Operation, 'name' | 'scope' | 'containers' | 'grants' | 'refusal'>;

/** A call as it is served. */
export interface Rpc extends Permission, Pick<Operation, 'handle' | 'stream' | 'withinMs'> {
  /** `/gateway.GatewayService/ListTasks` */
  readonly path: string;
  /** Messages in the table of fields. */
  readonly request: string;
  readonly response: string;
  /** The request of the handler, from the message. @throws DecodeError */
  readonly read: (message: Plain) => unknown;
  /** The text of a refusal of what the message asks for; undefined: none. */
  readonly refuses: (message: Plain) => string | undefined;
  /** The message of the answer, by names of operations. */
  readonly tell: (answer: unknown, caller: Caller | null) => Plain;
}

interface Adapter {
  /** Name of the operation; absent: that of the call. */
  readonly operation?: string;
  /** Name of the messages, where it is not that of the call. */
  readonly messages?: string;
  readonly read?: (message: Plain) => Plain;
  readonly refuses?: (message: Plain) => string | undefined;
  readonly tell?: (answer: Plain, caller: Caller | null) => Plain;
  /** The only answer; absent: an operation answers. */
  readonly always?: Plain;
}

const recordOf = (value: unknown): Plain => (value ?? {}) as Plain;
const none = (): undefined => undefined;

/** Zeroes of a stub count as they are, and the task policy is what says timeout and retries. */
function stubAsked(message: Plain): Plain {
  const { disks, task_policy: policy, ...rest } = message;
  const hasDisks = Array.isArray(disks) && disks.length > 0;
  const counted =
    policy === null ? {} : { timeout: recordOf(policy)['timeout'], retries: recordOf(policy)['max_retries'] };
  return { ...rest, task_policy: policy, ...counted, ...(hasDisks ? { disks } : {}) };
}

/** Names of rollouts: the client's `replace` is our `now`. */
const rolloutAsked = (message: Plain): Plain =>
  message['rollout'] === 'replace' ? { ...message, rollout: 'now' } : message;

const privatePool = (pool: Plain): Plain => {
  const state = recordOf(pool['state']);
  return {
    name: pool['name'],
    selector: pool['name'],
    status: state['status'],
    machineCount: Number(state['registeredMachines'] ?? 0),
    readyMachineCount: Number(state['readyMachines'] ?? 0),
  };
};

/** The administrator's own pools are the shared ones, which are nobody's private ones. */
const privatePools = (answer: Plain, caller: Caller | null): Plain => ({
  ...answer,
  pools: caller?.isAdmin === true ? [] : (answer['pools'] as readonly Plain[]).map(privatePool),
});

/** The command for the new machine, which has the token in it. */
const withCommand = (answer: Plain): Plain =>
  answer['ok'] === true
    ? { ...answer, installCommand: agentLine(String(answer['agentUpstreamUrl']), String(answer['agentUpstreamToken'])) }
    : answer;

const NO_PARTS = 'objects are uploaded whole: PUT all bytes to the address that CreateObject gave';
const NO_DELTAS = 'changes to an uploaded object are not taken: upload the whole object';
const NO_RESTART =
  'restart is not available: drain without it, and restart the agent by its service when nothing runs there';
const NO_GIT = 'images are not built from a repository: clone it, and build from its Dockerfile';

const fromGit = ({ git_source: source }: Plain): string | undefined => (source === null ? undefined : NO_GIT);

const GATEWAY: Readonly<Record<string, Adapter>> = {
  Authorize: {},
  SignPayload: {},
  HeadObject: {},
  CreateObject: {},
  CompleteObjectUpload: { operation: 'CreateObject', always: { ok: false, errorMsg: NO_PARTS } },
  // Without this word the client gives up, where it could upload the whole folder.
  CreateObjectDelta: { operation: 'CreateObject', always: { ok: false, baseMissing: true, errorMsg: NO_DELTAS } },
  CommitObjectDelta: { operation: 'CreateObject', always: { ok: false, errorMsg: NO_DELTAS } },
  GetOrCreateStub: { read: stubAsked },
  DeployStub: {
    read: rolloutAsked,
    tell: (answer) => ({ ...answer, rolloutAction: recordOf(answer['rollout'])['state'] ?? '' }),
  },
  GetURL: { messages: 'GetUrl' },
  ListDeployments: {},
  StartDeployment: {},
  StopDeployment: {},
  ScaleDeployment: {},
  DeleteDeployment: {},
  ListTasks: {},
  StopTasks: {},
  ListContainers: {},
  StopContainer: {},
  CheckpointContainer: {},
  ListTokens: {},
  CreateToken: {},
  ToggleToken: {},
  DeleteToken: {},
  ListWorkers: {},
  CordonWorker: {},
  UncordonWorker: {},
  DrainWorker: { refuses: ({ restart }) => (restart === true ? NO_RESTART : undefined) },
  ListMachines: {},
  CreateMachine: { tell: withCommand },
  DeleteMachine: {},
  ListPools: {},
  ListPrivatePools: { operation: 'ListPools', tell: privatePools },
  ListPoolOffers: { operation: 'ListPools', always: { ok: true } },
  ExportWorkspaceConfig: {},
};

const IMAGE: Readonly<Record<string, Adapter>> = {
  VerifyImageBuild: { refuses: fromGit },
  BuildImage: { refuses: fromGit, tell: (answer) => recordOf(answer['result']) },
};

const VOLUME: Readonly<Record<string, Adapter>> = {
  GetOrCreateVolume: { tell: (answer) => ({ ...answer, errMsg: answer['error'] }) },
};

const SERVICES: readonly (readonly [pack: string, service: string, rpcs: Readonly<Record<string, Adapter>>])[] = [
  ['gateway', 'GatewayService', GATEWAY],
  ['image', 'ImageService', IMAGE],
  ['volume', 'VolumeService', VOLUME],
];

/** Every call that is served. @throws Error where an operation is not there */
export function allRpcs(operations: readonly Operation[]): readonly Rpc[] {
  const byName = new Map(operations.map((operation) => [operation.name, operation]));
  return SERVICES.flatMap(([pack, service, rpcs]) =>
    Object.entries(rpcs).map(([name, adapter]) => {
      const operation = byName.get(adapter.operation ?? name);
      if (operation === undefined) throw new Error(`no operation serves ${pack}.${service}/${name}`);
      const messages = `${pack}.${adapter.messages ?? name}`;
      return {
        path: `/${pack}.${service}/${name}`,
        request: `${messages}Request`,
        response: `${messages}Response`,
        ...served(operation, adapter),
        name,
      };
    }),
  );
}

/** An answer that is always the same has the permissions of the operation that would do it. */
function served(operation: Operation, adapter: Adapter): Omit<Rpc, 'path' | 'request' | 'response'> {
  const { always, read = (message) => message, refuses = none, tell = (answer) => answer } = adapter;
  const { name, scope, containers, grants, refusal, stream, withinMs, handle } = operation;
  const permission = { name, scope, containers, grants, refusal };
  if (always !== undefined)
    return {
      ...permission,
      read: (message) => message,
      refuses: none,
      handle: () => Promise.resolve(always),
      tell: recordOf,
    };
  const decode = compileDecoder(operation.request);
  const encode = compileEncoder(operation.response);
  return {
    ...permission,
    handle,
    ...(stream === undefined ? {} : { stream }),
    ...(withinMs === undefined ? {} : { withinMs }),
    read: (message) => decode(read(message)),
    refuses,
    tell: (answer, caller) => tell(recordOf(encode(answer)), caller),
  };
}
