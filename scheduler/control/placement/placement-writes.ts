// Writes of a placement: the home of local volumes, and the container's row with its GPUs, in one statement that checks
// everything again (container-placements.ts). Invariant: a machine whose rows may be other than memory knows, because a
// statement had no answer or was refused, takes no further container until the rows are read.
import { randomUUID } from 'node:crypto';
import type { Clock } from '#shared/clock.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Target } from '../../domain/stub-config.ts';
import { roomOf } from '../../fleet/capacity.ts';
import type { ContainerControl } from '../../fleet/containers/container-registry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import type { Machine } from '../../fleet/machine.ts';
import type { Machines } from '../../fleet/machines.ts';
import type { Place } from '../../stores/store/queries/container-placements.ts';
import type { Choice } from '../plan/place.ts';
import { volumeIds } from './snapshot.ts';

export interface PlacementWritesParts {
  readonly containers: ContainerControl;
  readonly machines: Machines;
  readonly clock: Clock;
  readonly log: Log;
  /** Makes the machine the home of those volumes that have none. @returns false: another replica was faster */
  readonly bindVolumes: (volumeIds: readonly string[], machineId: MachineId) => Promise<boolean>;
}

/** `conflict`: the machine is taken; `gone`: the container needs no place any more. */
export type PlacementOutcome = 'placed' | 'conflict' | 'gone';

export class PlacementWrites {
  readonly #parts: PlacementWritesParts;
  #doubtful = new Set<MachineId>();

  constructor(parts: PlacementWritesParts) {
    this.#parts = parts;
  }

  /** Machines that take no container until their rows are read. */
  get doubtful(): ReadonlySet<MachineId> {
    return this.#doubtful;
  }

  /**
   * Reads the rows, after which no machine is doubtful. A failure is logged: the machines stay doubtful.
   * @returns the machines that are not doubtful any more
   */
  async settle(): Promise<ReadonlySet<MachineId>> {
    if (this.#doubtful.size === 0) return new Set();
    const read = this.#doubtful;
    try {
      await this.#parts.containers.readMissed();
      this.#doubtful = this.#doubtful.difference(read);
      return read;
    } catch (error) {
      this.#parts.log.warn({ err: error, machines: read.size }, 'rows of machines not read, trying again');
      return new Set();
    }
  }

  /** Writes a choice. @throws the database's error; the container may have been placed all the same */
  async commit(entry: ContainerEntry, choice: Choice): Promise<PlacementOutcome> {
    const { containers, bindVolumes } = this.#parts;
    const { id, epoch } = entry.row;
    const place = this.#placeOf(entry, choice);
    if (place === undefined) return 'conflict';
    const volumes = volumesOf(entry);
    if (volumes.length > 0 && !(await bindVolumes(volumes, choice.machineId))) return 'conflict';
    const assigned = await this.#written([choice.machineId], () => containers.assign(id, place, { epoch }));
    if (assigned === 'moved') return 'placed';
    if (assigned !== 'no_room') return 'gone';
    this.#doubt([choice.machineId]);
    return 'conflict';
  }

  /**
   * Writes new containers, each with its choice.
   * @param choices - by container, in their order; undefined: there is no place for it at once
   * @returns none: this process does not lead any more
   * @throws the database's error; the containers may have been written all the same
   */
  async create(
    target: Target,
    wanted: readonly ContainerEntry[],
    choices: readonly (Choice | undefined)[],
  ): Promise<readonly ContainerEntry[]> {
    const placements = wanted.map((entry, index) => {
      const choice = choices[index];
      const place = choice && this.#placeOf(entry, choice);
      return place === undefined ? { id: entry.row.id } : { id: entry.row.id, place };
    });
    const machines = choices.flatMap((choice) => choice?.machineId ?? []);
    const entries = await this.#written(machines, () => this.#parts.containers.createPlaced(target, placements));
    const refused = new Set(entries.filter(({ row }) => row.state === 'PENDING').map(({ row }) => row.id));
    this.#doubt(placements.flatMap(({ id, place }) => (refused.has(id) ? (place?.machineId ?? []) : [])));
    return entries;
  }

  async #written<T>(machines: readonly MachineId[], write: () => Promise<T>): Promise<T> {
    try {
      return await write();
    } catch (error) {
      this.#doubt(machines);
      throw error;
    }
  }

  #doubt(machines: readonly MachineId[]): void {
    if (machines.length > 0) this.#doubtful = this.#doubtful.union(new Set(machines));
  }

  /** @returns undefined: the machine is gone */
  #placeOf({ spec }: ContainerEntry, { machineId, gpuUuids }: Choice): Place | undefined {
    const { machines, clock } = this.#parts;
    const machine: Machine | undefined = machines.get(machineId);
    if (machine === undefined) return undefined;
    const { cpuMillicores, memoryBytes } = spec;
    return {
      machineId,
      assignmentId: randomUUID(),
      gpuUuids,
      scheduledAtMs: clock.nowMs(),
      takes: { cpuMillicores, memoryBytes },
      room: roomOf(machine),
    };
  }
}

/** Local volumes that the container mounts, which have home machines. */
export const volumesOf = ({ spec }: ContainerEntry): readonly string[] => volumeIds(spec, 'local');
