// Every GPU that an owner of machines has: whether it serves, why not, who holds it, how much it is used, and the steps
// that bring it back. Made of what this replica has in memory, and kept for a second for all its readers.
import type { ContainerId, DeploymentId, MachineId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { KeptAnswers } from '#shared/kept-answers.ts';
import type { Gpu__Output } from '#shared/protocol/generated/messages.ts';
import { gpusOf } from './capacity.ts';
import type { ContainerRegistry } from './containers/container-registry.ts';
import type { DeviceUse, DeviceUses } from './device-use.ts';
import { blockingConditions, conditionWordsOf, isDraining, isSchedulable } from './machine.ts';
import type { Machine } from './machine.ts';
import type { Machines } from './machines.ts';
import type { Owner } from './worker-service.ts';

/** leased: a container has it · free · blocked: sound, and its machine takes nothing new · out: it serves nobody */
export const GPU_STANDINGS = ['leased', 'free', 'blocked', 'out'] as const;
export type GpuStanding = (typeof GPU_STANDINGS)[number];

export interface GpuHolder {
  readonly containerId: ContainerId;
  readonly workspaceId: WorkspaceId | null;
  readonly deploymentId: DeploymentId | null;
  readonly stubId: StubId | null;
  readonly sinceMs: number | null;
}

export interface MappedGpu {
  readonly machineId: MachineId;
  readonly hostname: string;
  readonly poolName: string;
  readonly gpu: Gpu__Output;
  readonly state: string;
  readonly standing: GpuStanding;
  /** Why it is out or blocked; empty: it is neither. */
  readonly why: string;
  /** Steps that bring it back, in order; commands stand between backticks. */
  readonly steps: readonly string[];
  readonly holder: GpuHolder | null;
  readonly use: DeviceUse | null;
  /** Since when its holder leaves it idle; null: it does not, or not for long enough to tell. */
  readonly idleSinceMs: number | null;
}

/** A holder that uses its GPU so little for so long leaves it idle. */
export const IDLE_AFTER_MS = 10 * 60_000;

export interface GpuFilter {
  readonly poolName?: string | undefined;
  readonly machineId?: string | undefined;
}

export interface GpuMapParts {
  readonly machines: Pick<Machines, 'all'>;
  readonly containers: Pick<ContainerRegistry, 'ofMachine'>;
  readonly deviceUses: Pick<DeviceUses, 'of'>;
  readonly clock: { nowMs(): number; monotonicMs(): number };
}

const KEPT_MS = 1_000;
/** Owners whose GPUs are kept, and all of their GPUs. */
const MOST_KEPT = 100;
const MOST_KEPT_GPUS = 50_000;

export class GpuMap {
  readonly #parts: GpuMapParts;
  /** GPUs by machine. */
  readonly #kept: KeptAnswers<WorkspaceId | null, readonly (readonly MappedGpu[])[]>;

  constructor(parts: GpuMapParts) {
    this.#parts = parts;
    this.#kept = new KeptAnswers({
      clock: parts.clock,
      most: MOST_KEPT,
      leastMs: KEPT_MS,
      size: { of: (all) => all.reduce((sum, { length }) => sum + length, 0), most: MOST_KEPT_GPUS },
    });
  }

  /** GPUs of the owner's machines, by pool, machine and the driver's index. */
  async list(owner: Owner, filter: GpuFilter): Promise<readonly MappedGpu[]> {
    return (await this.byMachine(owner, filter)).flat();
  }

  /** The same, of each machine together. A machine without a GPU is left out. */
  async byMachine(
    { workspaceId }: Owner,
    { poolName, machineId }: GpuFilter,
  ): Promise<readonly (readonly MappedGpu[])[]> {
    const all = await this.#kept.of(workspaceId, () => this.#read(workspaceId));
    return all.filter(
      ([first]) =>
        (poolName === undefined || first?.poolName === poolName) &&
        (machineId === undefined || first?.machineId === machineId),
    );
  }

  async #read(workspaceId: WorkspaceId | null): Promise<readonly (readonly MappedGpu[])[]> {
    const { machines, deviceUses, clock } = this.#parts;
    const owned = [...machines.all()]
      .filter(({ row }) => row.poolWorkspaceId === workspaceId && row.joinedAtMs !== null)
      .filter((machine) => gpusOf(machine).length > 0)
      .toSorted((a, b) => compare(a.row.poolName, b.row.poolName) || compare(a.row.id, b.row.id));
    const uses = await deviceUses.of(owned.map(({ row }) => row.id));
    const nowMs = clock.nowMs();
    return owned.map((machine) => {
      const holders = this.#holdersOn(machine);
      return gpusOf(machine)
        .toSorted((a, b) => a.index - b.index || compare(a.uuid, b.uuid))
        .map((gpu) =>
          mapped(machine, gpu, holders.get(gpu.uuid) ?? null, uses.get(machine.row.id)?.get(gpu.uuid) ?? null, nowMs),
        );
    });
  }

  #holdersOn(machine: Machine): ReadonlyMap<string, GpuHolder> {
    const holders = new Map<string, GpuHolder>();
    for (const orphan of machine.orphans.values())
      for (const uuid of orphan.gpuUuids)
        holders.set(uuid, {
          containerId: orphan.containerId,
          workspaceId: null,
          deploymentId: null,
          stubId: null,
          sinceMs: null,
        });
    for (const { row } of this.#parts.containers.ofMachine(machine.row.id)) {
      if (row.state === 'PENDING') continue;
      const holder = {
        containerId: row.id,
        workspaceId: row.workspaceId,
        deploymentId: row.deploymentId,
        stubId: row.stubId,
        sinceMs: row.startedAtMs ?? row.scheduledAtMs,
      };
      for (const uuid of row.gpuUuids) holders.set(uuid, holder);
    }
    return holders;
  }
}

function mapped(
  machine: Machine,
  gpu: Gpu__Output,
  holder: GpuHolder | null,
  use: DeviceUse | null,
  nowMs: number,
): MappedGpu {
  const { row } = machine;
  const state = gpu.state || (gpu.unhealthy ? 'unhealthy' : 'healthy');
  const blocked = isSchedulable(machine) ? '' : whyBlocked(machine);
  const standing =
    gpu.unhealthy || state !== 'healthy' ? 'out' : holder !== null ? 'leased' : blocked === '' ? 'free' : 'blocked';
  const idleSinceMs = Math.max(use?.idleSinceMs ?? nowMs, holder?.sinceMs ?? 0);
  const isIdle = standing === 'leased' && nowMs - idleSinceMs >= IDLE_AFTER_MS;
  return {
    machineId: row.id,
    hostname: row.hostname ?? '',
    poolName: row.poolName,
    gpu,
    state,
    standing,
    why: standing === 'out' ? gpu.why || state : standing === 'blocked' ? blocked : '',
    steps: standing === 'out' ? stepsFor(state, row.id, gpu) : standing === 'blocked' ? blockedSteps(machine) : [],
    holder,
    use,
    idleSinceMs: isIdle ? idleSinceMs : null,
  };
}

/** Why a machine takes nothing new, in words. */
export function whyBlocked(machine: Machine): string {
  const { health, row } = machine;
  if (health !== 'READY') return `the machine is ${health}: its agent is not connected`;
  if (isDraining(row)) return 'the machine drains';
  if (row.intent !== 'active') return `the machine is ${row.intent}`;
  const [name] = blockingConditions(machine);
  if (name !== undefined) return conditionWordsOf(machine)[name] || `the machine has the condition ${name}`;
  return 'the scheduler keeps new containers away from the machine';
}

function blockedSteps(machine: Machine): readonly string[] {
  const { health, row } = machine;
  if (health === 'READY' && row.intent === 'active' && !isDraining(row))
    return [`see what the machine says: \`longshore machine show ${row.id}\``];
  if (health === 'READY') return [`let it serve again: \`longshore worker uncordon ${row.id}\``];
  return [`on the host, look at its agent: \`journalctl -u longshore-agent\``];
}

/** Steps of an operator for a GPU that is out. Source: docs/gpus.md. */
function stepsFor(state: string, machineId: MachineId, gpu: Gpu__Output): readonly string[] {
  const uuid = gpu.parentUuid || gpu.uuid;
  const drain = `drain its machine: \`longshore worker drain ${machineId}\``;
  const act = (action: string): string => `\`longshore machine gpu ${action} ${machineId} ${uuid}\``;
  switch (state) {
    case 'excluded':
      return [`give it back: ${act('return')}`];
    case 'in_build':
      return ['wait: the build gives it back when it ends'];
    case 'unprobed':
    case 'suspect':
      return ['wait: a probe or the next look of the driver decides within minutes'];
    case 'lost':
      return [drain, `reseat the card or reboot the host; where it is gone for good: ${act('forget')}`];
    case 'quarantined':
      return [drain, 'reboot the host: only a boot, or the end of the last process, ends a quarantine'];
    default:
      return [drain, `on the host: \`nvidia-smi --gpu-reset -i ${uuid}\`, then ${act('return')}`];
  }
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
