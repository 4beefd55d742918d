// Flags of commands that have more than a few: the command tree fills them in, the commands read them.
import type { GeneratorOptions } from '#scheduler/control/simulator/generate.ts';
import type { GlobalOptions } from './context.ts';

export interface UpFlags extends GlobalOptions {
  readonly dataDir?: string;
  readonly port?: number;
  readonly agentPort?: number;
  readonly registry?: boolean;
  readonly example?: string;
  readonly exampleData: string;
  readonly firstRun?: boolean;
}

export interface DeployFlags {
  readonly name?: string;
  readonly root?: string;
  readonly dryRun?: boolean;
  readonly now?: boolean;
}

export interface RunFlags {
  readonly image?: string;
  readonly arg?: readonly string[];
  readonly data?: string;
  readonly root?: string;
  readonly gpu?: string;
  readonly cpu?: string;
  readonly memory?: string;
  readonly pool?: string;
  readonly env?: readonly string[];
  readonly secret?: readonly string[];
  readonly volume?: readonly string[];
  readonly terminal?: boolean;
}

export interface ServeFlags {
  readonly root?: string;
  readonly gpu?: string;
}

export interface InvokeFlags {
  readonly data: string;
  readonly version?: number;
  /** Absent: an endpoint of that name, else the kind that the name has. */
  readonly kind?: string;
  readonly timeout: number;
  /** Key of flow control. */
  readonly key?: string;
  /** Head start in the queue, seconds. */
  readonly priority?: number;
  readonly idempotencyKey?: string;
}

export interface LogsFlags {
  readonly grep?: string;
  readonly container?: string;
  readonly task?: string;
  readonly since?: string;
  readonly follow?: boolean;
  readonly limit?: number;
}

export interface EventsFlags {
  readonly type?: string;
  readonly task?: string;
  readonly container?: string;
  readonly stub?: string;
  readonly app?: string;
  readonly follow?: boolean;
  readonly limit: number;
}

export interface TaskListFlags {
  readonly status?: string;
  readonly deployment?: string;
  readonly container?: string;
  readonly since?: string;
  readonly limit: number;
}

export interface ContainerListFlags {
  readonly ended?: boolean;
  readonly limit: number;
}

export interface TaskGetFlags {
  readonly input?: boolean;
}

export interface TaskRerunFlags {
  readonly deployment?: string;
  readonly status?: string;
  readonly since?: string;
  readonly limit: number;
  readonly yes?: boolean;
}

export interface TaskDeadListFlags {
  readonly deployment?: string;
  readonly limit: number;
}

/** Flags of `task dead drop` and `task dead redrive`. */
export interface TaskDeadFlags {
  readonly all?: boolean;
  readonly deployment?: string;
  readonly yes?: boolean;
}

export interface TaskRedriveFlags extends TaskDeadFlags {
  /** Tasks a second; undefined: as fast as they are taken. */
  readonly rate?: number;
}

export interface DeploymentListFlags {
  readonly name?: string;
  readonly active?: boolean;
  readonly limit: number;
}

export interface DeploymentHealthFlags {
  readonly state?: string;
  readonly name?: string;
  readonly limit: number;
}

/** Flags of `deployment start` and `stop`. */
export interface DeploymentVerbFlags {
  readonly allVersions?: boolean;
}

export interface DeploymentDeleteFlags {
  readonly version?: number;
  readonly yes?: boolean;
}

export interface DeploymentRollbackFlags {
  readonly yes?: boolean;
}

export interface AuditFlags {
  readonly since?: string;
  readonly follow?: boolean;
  readonly limit: number;
}

export interface MapShowFlags {
  readonly after?: string;
  readonly limit: number;
}

/** Flag of commands that write a value which ends. */
export interface TtlFlags {
  readonly ttl?: number;
}

/** Flag of commands that delete all of something after a question. */
export interface ClearFlags {
  readonly yes?: boolean;
}

/** Flag of commands that an administrator may use on another workspace. */
export interface OfWorkspace {
  readonly workspace?: string;
}

export interface TokenUpdateFlags extends OfWorkspace {
  readonly name?: string;
  readonly expires?: string;
  readonly scope?: readonly string[];
  readonly app?: string;
}

export interface TokenCreateFlags extends TokenUpdateFlags {
  readonly type: string;
  readonly once?: boolean;
}

/** Flags of `enrol-token create`. */
export interface EnrolTokenFlags {
  readonly pool: string;
  readonly machines: number;
  readonly expires?: string;
  /** Kind of user data to print instead of the token. */
  readonly userData?: string;
}

export interface DrainFlags {
  readonly deadline?: number;
  readonly wait?: boolean;
}

/** Flags of `token toggle` and `delete`. */
export interface TokenVerbFlags extends OfWorkspace {
  readonly force?: boolean;
}

export interface WebhookCreateFlags {
  readonly events?: string;
  readonly description?: string;
  readonly retry?: boolean;
  readonly inactive?: boolean;
}

export interface WebhookUpdateFlags {
  readonly to?: string;
  readonly events?: string;
  readonly description?: string;
  readonly retry?: boolean;
  readonly active?: boolean;
}

export interface WebhookDeliveriesFlags {
  readonly state?: string;
  readonly limit: number;
}

export interface ModelAddFlags {
  readonly type?: string;
  readonly deployment?: string;
  readonly kind?: string;
  readonly port?: number;
  readonly server?: string;
  readonly secret?: string;
  readonly servedName?: string;
  readonly contextLength?: number;
  readonly dimensions?: number;
  readonly promptPrice?: number;
  readonly completionPrice?: number;
  readonly requestPrice?: number;
  readonly public?: boolean;
  readonly file?: string;
}

export interface SecretSetFlags {
  readonly file?: string;
}

/** Flags of `stack update`. */
export interface StackChangeFlags {
  readonly name?: string;
  readonly app?: readonly string[];
  readonly add?: readonly string[];
  readonly remove?: readonly string[];
}

export interface VolumeCreateFlags {
  readonly driver?: string;
  readonly machine?: string;
}

export interface VolumeDeleteFlags {
  readonly yes?: boolean;
}

/** Flags of `volume ls`, `rm` and `mv`. */
export interface VolumeEntryFlags {
  readonly recursive?: boolean;
  readonly replace?: boolean;
}

export interface VolumeCopyFlags {
  readonly all?: boolean;
  readonly quiet?: boolean;
}

export interface RegistrySetFlags extends SecretSetFlags {
  readonly username: string;
  readonly repositories: string;
  readonly name?: string;
}

/** Flags of `metrics`; `kind` and `app` of a workspace's alone. */
export interface MetricFlags {
  readonly since: string;
  readonly interval?: string;
  readonly kind?: string;
  readonly app?: string;
}

/** Settings of a pool by name. */
export type PoolFlags = Readonly<Record<string, number | boolean | string>>;

/** Flags of `pool show`, and of `pool set` beside the settings. */
export interface PoolOwnerFlags {
  readonly workspace?: string;
}

export interface CreditGrantFlags {
  readonly take?: boolean;
  readonly key?: string;
  readonly note?: string;
}

export interface UsageFlags {
  readonly workspace?: string;
  readonly from?: string;
  readonly to?: string;
  readonly by?: string;
}

export interface WorkspaceDeleteFlags {
  readonly yes?: boolean;
  readonly dryRun?: boolean;
}

export interface WorkspaceLimitsFlags {
  readonly set?: readonly string[];
}

export interface WorkspaceShareFlags {
  readonly weight?: string;
  readonly guarantee?: readonly string[];
  readonly limit?: readonly string[];
  readonly clear?: boolean;
}

export interface ConsoleFlags {
  /** Commander's form of `--no-open`. */
  readonly open?: boolean;
}

export interface InitFlags {
  readonly template: string;
  readonly list?: boolean;
}

export interface TraceGenerateFlags extends Omit<
  GeneratorOptions,
  'hours' | 'gpusPerMachine' | 'medianSeconds' | 'startSeconds' | 'oneTask'
> {
  /** Seconds. */
  readonly for: number;
  readonly gpus: number;
  readonly median: number;
  readonly start: number;
  readonly oneTask?: boolean;
}

export interface SimulateFlags {
  readonly check?: boolean;
  readonly machines?: string;
  /** Absent: all. */
  readonly policy?: readonly string[];
  readonly out?: string;
  readonly seed?: number;
}
