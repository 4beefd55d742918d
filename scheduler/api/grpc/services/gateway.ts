// The gateway's own calls: sign-in, objects, stubs, deployments, tasks, containers, tokens and machines.
import { randomBytes } from 'node:crypto';
import { kindOf } from '#shared/domain/status.ts';
import { agentLine } from '#shared/join-line.ts';
import { jsonTextOf } from '#shared/json-text.ts';
import { isRecord } from '#shared/json.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { Plain } from '../descriptor.ts';
import { recordOf } from './service.ts';
import type { Service } from './service.ts';

/** Kinds with a container for each call. */
const PER_CALL: ReadonlySet<string> = new Set(['function', 'schedule']);

/** The time of a schedule is told after its deployment. */
function extraAsked({ stub_type: type, extra }: Plain): unknown {
  if (kindOf(String(type)) !== 'schedule') return extra;
  const given = extra === '' ? {} : jsonTextOf(String(extra))?.value;
  return isRecord(given) && given['when'] === undefined ? JSON.stringify({ ...given, whenLater: true }) : extra;
}

/** Zeroes of a stub count as they are, and the task policy is what says timeout and retries. */
function stubAsked(message: Plain): Plain {
  const { disks, task_policy: policy, ...given } = message;
  // Functions of this client have no setting for these: it sends the defaults of other kinds.
  const rest = PER_CALL.has(kindOf(String(given['stub_type'])))
    ? { ...given, autoscaler: null, max_pending_tasks: 0 }
    : given;
  const hasDisks = Array.isArray(disks) && disks.length > 0;
  const counted =
    policy === null ? {} : { timeout: recordOf(policy)['timeout'], retries: recordOf(policy)['max_retries'] };
  return { ...rest, extra: extraAsked(message), task_policy: policy, ...counted, ...(hasDisks ? { disks } : {}) };
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

/** A pool by its name. Hardware joins later; what the client says of it is not needed. */
const poolAsked = ({ pool }: Plain): Plain => ({ name: recordOf(pool)['name'] });

const UNIT_SECONDS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600, d: 86_400 };
const JOIN_SECONDS = 1_800;
/** Seconds of a lifetime such as `30m`; undefined: it cannot be read. */
function secondsOf(ttl: unknown): number | undefined {
  const text = String(ttl);
  if (text === '') return JOIN_SECONDS;
  const [, digits, unit = ''] = /^(\d{1,6})([smhd])$/.exec(text) ?? [];
  return digits === undefined ? undefined : Number(digits) * (UNIT_SECONDS[unit] ?? 0);
}

/** An enrolment token for each command. */
const tokenAsked = ({ pool_name: poolName, ttl }: Plain): Plain => ({
  name: `join-${randomBytes(6).toString('hex')}`,
  poolName,
  expiresInSeconds: secondsOf(ttl) ?? 0,
});
const badTtl = ({ ttl }: Plain): string | undefined =>
  secondsOf(ttl) === undefined ? 'ttl must be a number with s, m, h or d behind it, such as 30m' : undefined;

const withJoinCommand = (answer: Plain): Plain =>
  answer['ok'] === true
    ? {
        ...answer,
        command: agentLine(String(answer['agentUpstreamUrl']), String(answer['secret'])),
        token: answer['secret'],
        expiresAt: recordOf(answer['token'])['expiresAt'],
      }
    : { ...answer, token: undefined };

const NO_CHECKPOINTS =
  'checkpoints are not available in this version: create_image_from_filesystem of a sandbox keeps its files';
const NO_PARTS = 'objects are uploaded whole: PUT all bytes to the address that CreateObject gave';
const NO_RESTART =
  'restart is not available: drain without it, and restart the agent by its service when nothing runs there';
export const GATEWAY: Service = {
  pack: 'gateway',
  name: 'GatewayService',
  messages: {
    AttachToContainerRequest: 'container_id 1',
    AttachToContainerResponse: 'output 1; done 2 bool; exit_code 3 int32',
    AuthorizeRequest: '',
    AuthorizeResponse: 'ok 1 bool; workspace_id 2; new_token 3; error_msg 4',
    Autoscaler: 'type 1; max_containers 2 uint32; tasks_per_container 3 uint32; min_containers 4 uint32',
    CheckpointContainerRequest: 'container_id 1',
    CheckpointContainerResponse: 'ok 1 bool; checkpoint_id 2; error_msg 3',
    CommitObjectDeltaRequest: 'object_id 1; base_object_id 2; removed_paths 3 string[]',
    CommitObjectDeltaResponse: 'ok 1 bool; object_id 2; size 3 int64; error_msg 4',
    CompleteObjectUploadRequest: 'object_id 1; upload_id 2; parts 3 ObjectUploadedPart[]',
    CompleteObjectUploadResponse: 'ok 1 bool; error_msg 2',
    ContainerStreamMessage: `
      attach_request 1 AttachToContainerRequest; sync_container_workspace 2 SyncContainerWorkspaceRequest`,
    CordonWorkerRequest: 'worker_id 1',
    CordonWorkerResponse: 'ok 1 bool; err_msg 2',
    CreateMachineRequest: 'pool_name 1',
    CreateMachineResponse: `
      ok 1 bool; err_msg 2; machine 3 Machine; agent_upstream_url 4; agent_upstream_branch 5;
      agent_upstream_token 6; install_command 7`,
    CreateObjectDeltaRequest: 'hash 1; size 2 int64; base_object_id 3; delta_size 4 int64',
    CreateObjectDeltaResponse: `
      ok 1 bool; object_id 2; presigned_url 3; put_headers 4 map<string,string>; error_msg 5;
      base_missing 6 bool`,
    CreateObjectRequest: `
      object_metadata 1 ObjectMetadata; hash 2; size 3 int64; overwrite 4 bool; supports_put_headers 5 bool;
      multipart_part_size 6 int64; multipart_total_size 7 int64`,
    CreateObjectResponse: `
      ok 1 bool; object_id 2; presigned_url 3; error_msg 4; put_headers 5 map<string,string>; upload_id 6;
      upload_parts 7 ObjectUploadPart[]`,
    CreatePoolRequest: 'pool 1 PoolConfig',
    CreatePoolResponse: 'ok 1 bool; err_msg 2; pool 3 PrivatePool',
    CreateTokenRequest: 'token_type 1',
    CreateTokenResponse: 'ok 1 bool; err_msg 2; token 3 Token',
    DatabaseServingConfig: `
      kind 1; port 2 uint32; readiness_probe 3; connection_env_name 4; credential_secret_names 5 string[];
      durability_mode 6; username_secret_name 7; password_secret_name 8; database_secret_name 9;
      connection_url_secret_name 10`,
    DeleteDeploymentRequest: 'id 1',
    DeleteDeploymentResponse: 'ok 1 bool; err_msg 2',
    DeleteMachineRequest: 'machine_id 1; pool_name 2',
    DeleteMachineResponse: 'ok 1 bool; err_msg 2',
    DeletePoolRequest: 'name 1',
    DeletePoolResponse: 'ok 1 bool; err_msg 2',
    DeleteTokenRequest: 'token_id 1',
    DeleteTokenResponse: 'ok 1 bool; err_msg 2',
    DeployStubRequest: 'stub_id 1; name 2; rollout 3',
    DeployStubResponse: `
      ok 1 bool; deployment_id 2; version 3 uint32; invoke_url 4; err_msg 5; warn_msg 6; rollout_action 7`,
    Deployment: `
      id 1; name 2; active 3 bool; stub_id 4; stub_type 5; stub_name 6; version 7 uint32; workspace_id 8;
      workspace_name 9; created_at 10 time; updated_at 11 time; app_id 12; database_kind 13;
      connection_string_secret 14; connection_env_name 15`,
    DrainWorkerRequest: 'worker_id 1; restart 2 bool',
    DrainWorkerResponse: 'ok 1 bool; err_msg 2',
    DurableDisk: 'name 1; size 2; mount_path 3; filesystem 4; driver 5; read_only 6 bool; source_snapshot_id 7',
    ExportWorkspaceConfigRequest: '',
    ExportWorkspaceConfigResponse: `
      gateway_http_host 1; gateway_http_port 2 int32; gateway_http_tls 3 bool; gateway_grpc_host 4;
      gateway_grpc_port 5 int32; gateway_grpc_tls 6 bool; workspace_id 7; persistent_vms 8 bool`,
    GetOrCreateStubRequest: `
      object_id 1; image_id 2; stub_type 3; name 4; python_version 5; cpu 6 int64; memory 7 int64; gpu 8;
      handler 9; retries 10 uint32; timeout 11 int64; keep_warm_seconds 12 float; workers 13 uint32;
      max_pending_tasks 15 uint32; volumes 16 Volume[]; force_create 17 bool; on_start 18; callback_url 19;
      authorized 20 bool; secrets 21 SecretVar[]; autoscaler 22 Autoscaler; task_policy 23 TaskPolicy;
      concurrent_requests 24 uint32; extra 25; checkpoint_enabled 26 bool; gpu_count 27 uint32; on_deploy 28;
      on_deploy_stub_id 29; entrypoint 30 string[]; ports 31 uint32[]; env 32 string[]; app_name 33;
      inputs 35 Schema; outputs 36 Schema; tcp 37 bool; block_network 38 bool; allow_list 39 string[];
      docker_enabled 40 bool; pool 41 PoolConfig; is_service 42 bool; serving 43 ServingConfig;
      disks 44 DurableDisk[]; checkpoint_trigger 46 types.CheckpointTrigger; hostname 47;
      persistent_root 48 PersistentRoot; managed_endpoint 49; use_vm 50 bool`,
    GetOrCreateStubResponse: `
      ok 1 bool; stub_id 2; err_msg 3; warn_msg 4; capacity_status 5; unsupported_gpus 6 string[];
      matched_private_pool 7`,
    GetPoolJoinCommandRequest: 'pool_name 1; ttl 2',
    GetPoolJoinCommandResponse: 'ok 1 bool; err_msg 2; command 3; token 4; expires_at 5 time',
    GetUrlRequest: 'stub_id 1; deployment_id 2; url_type 3; is_shell 4 bool',
    GetUrlResponse: 'ok 1 bool; err_msg 2; url 3',
    HeadObjectRequest: 'hash 1; supports_put_headers 2 bool',
    HeadObjectResponse: `
      ok 1 bool; exists 2 bool; object_id 3; object_metadata 4 ObjectMetadata; error_msg 5;
      use_workspace_storage 6 bool`,
    ListContainersRequest: '',
    ListContainersResponse: 'containers 1 types.Container[]; ok 2 bool; error_msg 3',
    ListDeploymentsRequest: 'filters 1 map<string,StringList>; limit 2 uint32',
    ListDeploymentsResponse: 'ok 1 bool; err_msg 2; deployments 3 Deployment[]',
    ListMachinesRequest: 'pool_name 1; limit 2 uint32',
    ListMachinesResponse: `
      ok 1 bool; err_msg 2; machines 3 Machine[]; gpus 4 map<string,bool>; supported_gpus 5 map<string,bool>;
      max_cpu_millicores 6 uint32; max_memory_mb 7 uint32`,
    ListPoolMachinesRequest: 'pool_name 1; limit 2 uint32',
    ListPoolMachinesResponse: 'ok 1 bool; err_msg 2; machines 3 Machine[]',
    ListPoolOffersRequest: 'pool 1 PoolConfig',
    ListPoolOffersResponse: 'ok 1 bool; err_msg 2',
    ListPoolsRequest: 'filters 1 map<string,StringList>; limit 2 uint32',
    ListPoolsResponse: 'ok 1 bool; err_msg 2; pools 3 Pool[]',
    ListPrivatePoolsRequest: 'filters 1 map<string,StringList>; limit 2 uint32',
    ListPrivatePoolsResponse: 'ok 1 bool; err_msg 2; pools 3 PrivatePool[]',
    ListTasksRequest: 'filters 1 map<string,StringList>; limit 2 uint32',
    ListTasksResponse: 'ok 1 bool; err_msg 2; tasks 3 Task[]; total 4 int32',
    ListTokensRequest: '',
    ListTokensResponse: 'ok 1 bool; err_msg 2; tokens 3 Token[]',
    ListWorkersRequest: '',
    ListWorkersResponse: 'ok 1 bool; err_msg 2; workers 3 types.Worker[]',
    Machine: `
      id 1; cpu 2 int64; memory 3 int64; gpu 4; gpu_count 5 uint32; status 6; pool_name 7; provider_name 8;
      registration_token 9; tailscale_url 10; tailscale_auth 11; last_keepalive 12; created 13; agent_version 14;
      machine_metrics 15 MachineMetrics; user_data 16; public_ip 18; tailnet_hostname 19; tailnet_ip 20;
      tailnet_ssh 21 bool`,
    MachineMetrics: `
      total_cpu_available 1 int32; total_memory_available 2 int32; cpu_utilization_pct 3 float;
      memory_utilization_pct 4 float; worker_count 5 int32; container_count 6 int32; free_gpu_count 7 int32;
      cache_usage_pct 8 float; cache_capacity 9 int32; cache_memory_usage 10 int32; cache_cpu_usage 11 float;
      memory_used_mb 12 int64; memory_total_mb 13 int64; disk_used_mb 14 int64; disk_total_mb 15 int64;
      disk_usage_pct 16 float; path_metrics 17 MachinePathMetrics[]`,
    MachinePathMetrics: `
      label 1; path 2; used_mb 3 uint64; total_mb 4 uint64; available_mb 5 uint64; usage_pct 6 float`,
    ObjectMetadata: 'name 1; size 2 int64',
    ObjectUploadPart: 'number 1 uint32; start 2 int64; end 3 int64; url 4',
    ObjectUploadedPart: 'number 1 uint32; etag 2',
    PersistentRoot: 'size 1; source_snapshot_id 2; name 3',
    Pool: `
      name 2; active 3 bool; gpu 4; min_free_gpu 5; min_free_cpu 6; min_free_memory 7; default_worker_cpu 8;
      default_worker_memory 9; default_worker_gpu_count 10; state 11 types.WorkerPoolState`,
    PoolConfig: `
      name 1; gpu 2 string[]; nodes 3 uint32; ttl 4; max_spend 5 double; providers 6 string[];
      regions 7 string[]; min_reliability 8 double; selector 9; mode 10; transport 11; fallback 12;
      priority 13 int32; offer_id 14; container_runtime 15`,
    PrivatePool: `
      name 1; selector 2; config 3 PoolConfig; committed_spend_micros 6 int64; status 7; source 8;
      created_at 9 time; expires_at 10 time; machine_count 11 uint32; ready_machine_count 12 uint32;
      reserved_nodes 13 uint32`,
    ScaleDeploymentRequest: 'id 1; containers 2 uint32',
    ScaleDeploymentResponse: 'ok 1 bool; err_msg 2',
    Schema: 'fields 1 map<string,SchemaField>',
    SchemaField: 'type 1; fields 2 Schema',
    SecretVar: 'name 1',
    ServingConfig: 'app_kind 1; serving_protocol 2; database 4 DatabaseServingConfig',
    SignPayloadRequest: 'payload 1 bytes',
    SignPayloadResponse: 'ok 1 bool; signature 2; timestamp 3 int64; error_msg 4',
    StartDeploymentRequest: 'id 1',
    StartDeploymentResponse: 'ok 1 bool; err_msg 2',
    StopContainerRequest: 'container_id 1',
    StopContainerResponse: 'ok 1 bool; error_msg 2',
    StopDeploymentRequest: 'id 1',
    StopDeploymentResponse: 'ok 1 bool; err_msg 2',
    StopTasksRequest: 'task_ids 1 string[]',
    StopTasksResponse: 'ok 1 bool; err_msg 2',
    StringList: 'values 1 string[]',
    SyncContainerWorkspaceRequest: `
      container_id 1; path 2; new_path 3; is_dir 4 bool; data 5 bytes; op 6 enum`,
    Task: `
      id 2; status 3; container_id 4; started_at 5 time; ended_at 6 time; stub_id 7; stub_name 8; workspace_id 9;
      workspace_name 10; created_at 11 time; updated_at 12 time`,
    TaskPolicy: 'timeout 1 int64; max_retries 2 uint32; ttl 3 uint32',
    ToggleTokenRequest: 'token_id 1',
    ToggleTokenResponse: 'ok 1 bool; err_msg 2; token 3 Token',
    Token: `
      token_id 1; key 2; active 3 bool; reusable 4 bool; workspace_id 5 uint32?; token_type 6; created_at 7 time;
      updated_at 8 time`,
    UncordonWorkerRequest: 'worker_id 1',
    UncordonWorkerResponse: 'ok 1 bool; err_msg 2',
    Volume: 'id 1; mount_path 2; config 3 types.MountPointConfig?',
  },
  calls: {
    Authorize: {},
    SignPayload: {},
    HeadObject: {},
    CreateObject: {},
    CompleteObjectUpload: { operation: 'CreateObject', always: { ok: false, errorMsg: NO_PARTS } },
    CreateObjectDelta: {},
    CommitObjectDelta: {},
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
    StopTasks: { repeats: 'once' },
    ListContainers: {},
    StopContainer: { repeats: 'once' },
    CheckpointContainer: { always: { ok: false, errorMsg: NO_CHECKPOINTS } },
    AttachToContainer: { asks: 'ContainerStreamMessage' },
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
    CreatePool: {
      read: poolAsked,
      tell: (answer) => (answer['ok'] === true ? { ...answer, pool: privatePool(recordOf(answer['pool'])) } : answer),
    },
    DeletePool: {},
    GetPoolJoinCommand: {
      operation: 'CreateEnrolmentToken',
      read: tokenAsked,
      refuses: badTtl,
      tell: withJoinCommand,
    },
    ListPoolMachines: { operation: 'ListMachines' },
    ListPoolOffers: { operation: 'ListPools', always: { ok: true } },
    ExportWorkspaceConfig: {},
  },
};
