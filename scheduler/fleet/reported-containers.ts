// Containers as the agent of a machine reports them, taken into the container registry: moves that follow from their
// phases, and containers that the agent still has although no row places them there. A session (session.ts) passes its
// reports on; observe.ts decides.
// Invariant: a message of an older epoch changes nothing.
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import type { ObservedContainer__Output, StatusReport__Output } from '#shared/protocol/generated/messages.ts';
import type { AgentReports } from './agent-reports.ts';
import type { ContainerEntry } from './containers/container-entry.ts';
import type { ContainerRegistry } from './containers/container-registry.ts';
import type { StartProgress } from './containers/start-progress.ts';
import type { Orphan } from './machine.ts';
import type { Machines } from './machines.ts';
import { stepsAfterReboot, stepsFor, stepsWhenAbsent } from './observe.ts';

/** Containers that an agent has and no row places there. Further ones are not kept: no machine runs so many. */
const MOST_ORPHANS = 1_000;
/** Bound on the length of ids; ours are shorter. */
const MAX_ID_LENGTH = 200;

export interface ReportedContainersParts {
  readonly machineId: MachineId;
  readonly sessionId: string;
  readonly machines: Pick<Machines, 'get'>;
  readonly reports: Pick<AgentReports, 'setOrphans'>;
  readonly containers: ContainerRegistry;
  readonly progress: Pick<StartProgress, 'reported'>;
  /** Tells the dispatcher that a container runs, and how many of its slots take attempts now. */
  readonly onRunning: (entry: ContainerEntry, slots: number) => void;
}

export class ReportedContainers {
  readonly #parts: ReportedContainersParts;

  constructor(parts: ReportedContainersParts) {
    this.#parts = parts;
  }

  /** Fails the containers that ran before a boot of the machine. */
  async failAll(): Promise<void> {
    const { containers, machineId } = this.#parts;
    for (const { row } of [...containers.ofMachine(machineId)]) {
      for (const { event, change } of stepsAfterReboot(row))
        await containers.transition(row.id, event, { epoch: row.epoch, change });
    }
  }

  /** Handles a whole report: containers in it change state, and the machine's other containers are gone. */
  async whole(observed: readonly ObservedContainer__Output[]): Promise<void> {
    const named = new Set(observed.map((one) => one.containerId));
    await this.#holdDevices(observed);
    for (const one of observed) await this.#observe(one);
    await this.#rememberOrphans(observed, true);
    const { machineId, containers } = this.#parts;
    for (const entry of [...containers.ofMachine(machineId)]) {
      if (named.has(entry.row.id)) continue;
      for (const step of stepsWhenAbsent(entry.row)) {
        await containers.transition(entry.row.id, step.event, { epoch: entry.row.epoch, change: step.change });
      }
    }
  }

  /** Handles a report of the containers that changed, or of all. */
  async status(report: StatusReport__Output): Promise<void> {
    if (report.full) await this.whole(report.containers);
    else {
      await this.#holdDevices(report.containers);
      for (const one of report.containers) await this.#observe(one);
      await this.#rememberOrphans(report.containers, false);
    }
  }

  /**
   * Keeps the devices of exited containers held until they are removed. The devices are stored before the container's
   * end is announced, so that no listener sees them as free (I2).
   */
  async #holdDevices(observed: readonly ObservedContainer__Output[]): Promise<void> {
    const { machineId, sessionId, machines, reports, containers } = this.#parts;
    const held = observed.filter(({ phase, gpuUuids, containerId, epoch }) => {
      const row = containers.get(containerId as ContainerId)?.row;
      return phase === 'exited' && gpuUuids.length > 0 && row?.machineId === machineId && row.epoch === epoch;
    });
    if (held.length === 0) return;
    const orphans = new Map(machines.get(machineId)?.orphans);
    for (const one of held) {
      const orphan = orphanOf(one);
      if (orphan !== undefined && orphans.size < MOST_ORPHANS) orphans.set(orphan.containerId, orphan);
    }
    await reports.setOrphans(machineId, sessionId, [...orphans.values()]);
  }

  /**
   * Keeps containers that no row places there: they take up their
   * share of the machine until the agent says that they are removed.
   */
  async #rememberOrphans(observed: readonly ObservedContainer__Output[], full: boolean): Promise<void> {
    const { machineId, sessionId, machines, reports, containers } = this.#parts;
    const before = machines.get(machineId)?.orphans ?? new Map<ContainerId, Orphan>();
    const orphans = new Map(full ? [] : before);
    for (const one of observed) {
      const containerId = one.containerId as ContainerId;
      const row = containers.get(containerId)?.row;
      const placedHere = row?.machineId === machineId && row.epoch === one.epoch;
      const orphan = placedHere ? undefined : orphanOf(one);
      if (orphan === undefined) orphans.delete(containerId);
      else if (orphans.has(containerId) || orphans.size < MOST_ORPHANS) orphans.set(containerId, orphan);
    }
    if (orphans.size > 0 || before.size > 0) await reports.setOrphans(machineId, sessionId, [...orphans.values()]);
  }

  async #observe(observed: ObservedContainer__Output): Promise<void> {
    const { machineId, containers } = this.#parts;
    const entry = containers.get(observed.containerId as ContainerId);
    // The assignment is unknown or ended here, or another machine's. The
    // next snapshot leaves the container out, so the agent stops it.
    if (entry === undefined || entry.row.machineId !== machineId || entry.row.epoch !== observed.epoch) return;
    this.#parts.progress.reported(entry, observed);
    if (observed.phase === 'running') entry.startPhases = observed.startPhases;
    for (const step of stepsFor(entry.row, observed)) {
      await containers.transition(entry.row.id, step.event, { epoch: observed.epoch, change: step.change });
    }
    if (observed.phase === 'running' && (entry.row.state === 'RUNNING' || entry.row.state === 'DRAINING')) {
      this.#parts.onRunning(entry, Math.max(0, Math.max(1, observed.slots) - observed.restartingSlots));
    }
  }
}

/** A removed container holds nothing; an exited one holds its devices until it is removed. */
function orphanOf(observed: ObservedContainer__Output): Orphan | undefined {
  const { containerId, assignmentId, epoch, gpuUuids } = observed;
  const exited = observed.phase === 'exited';
  if (observed.phase === 'removed' || (exited && gpuUuids.length === 0)) return undefined;
  if (containerId.length > MAX_ID_LENGTH || assignmentId.length > MAX_ID_LENGTH) return undefined;
  return {
    containerId: containerId as ContainerId,
    assignmentId,
    epoch,
    cpuMillicores: exited ? 0 : observed.cpuMillicores,
    memoryBytes: exited ? 0 : observed.memoryBytes,
    gpuUuids,
  };
}
