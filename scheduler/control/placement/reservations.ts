// Free amounts of machines, in Redis, so that reserving is one atomic step from any process: CPU, memory, GPU counts,
// and each device's owner (assignment and epoch). Callers: placement-writes.ts (reserve, confirm) and accounting.ts
// (release, recount). Invariants: no free amount goes below zero; a device has one owner; release is a no-op for anyone
// else.
import type { Redis } from 'ioredis';
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import type { Keys } from '../../stores/queues/keys.ts';
import { defineScript } from '../../stores/queues/scripts.ts';
import type { Script } from '../../stores/queues/scripts.ts';

/** Owner of resources: one placement of one container on one machine. */
export interface ReservationOwner {
  readonly machineId: MachineId;
  readonly containerId: ContainerId;
  readonly assignmentId: string;
  readonly epoch: number;
}

export interface Reservation extends ReservationOwner {
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  readonly gpuUuids: readonly string[];
}

/**
 * Reason why a reservation was not made. `unknown_machine`: the machine has no counts (yet, or Redis lost its data).
 */
export type ReserveConflict =
  | 'stale_leader'
  | 'unknown_machine'
  | 'not_schedulable'
  | 'already_assigned'
  | 'cpu'
  | 'memory'
  | 'gpu_count'
  | 'gpu_taken';

/** Total amounts of a machine, whether anything may be placed there, and what holds them. */
export interface Countable {
  readonly machineId: MachineId;
  readonly schedulable: boolean;
  readonly totalCpuMillicores: number;
  readonly totalMemoryBytes: number;
  readonly totalGpus: number;
  readonly held: readonly Reservation[];
}

/** Differences that a recount found between the old counts and the new. */
export interface Drift {
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  readonly gpus: number;
  readonly reservations: number;
  /** Devices that two owners claim. */
  readonly leasedTwice: number;
}

/** Milliseconds after which a reservation that no row names is given back; with the leader's sweep at most 15 s. */
export const IN_FLIGHT_MS = 10_000;

export class Reservations {
  readonly #client: Redis;
  readonly #keys: Keys;
  readonly #reserve: Script;
  readonly #confirm: Script;
  readonly #release: Script;
  readonly #recount: Script;
  readonly #forget: Script;
  readonly #inFlightMs: number;

  constructor(parts: { readonly client: Redis; readonly keys: Keys; readonly inFlightMs?: number }) {
    this.#client = parts.client;
    this.#keys = parts.keys;
    this.#inFlightMs = parts.inFlightMs ?? IN_FLIGHT_MS;
    this.#reserve = defineScript(parts.client, 'longshoreReserve');
    this.#confirm = defineScript(parts.client, 'longshoreConfirmReservation');
    this.#release = defineScript(parts.client, 'longshoreRelease');
    this.#recount = defineScript(parts.client, 'longshoreRecount');
    this.#forget = defineScript(parts.client, 'longshoreForgetMachine');
  }

  /**
   * Takes all of the wanted amounts or nothing; the same assignment again is success.
   * @param fence - the leader's number: a leader below the highest number ever given reserves nothing
   * @throws the client's error; the reservation may have been made all the same, and then expires
   */
  async reserve(wanted: Reservation, fence: number): Promise<'reserved' | ReserveConflict> {
    const { machineId, containerId, assignmentId, epoch, cpuMillicores, memoryBytes, gpuUuids } = wanted;
    const answer = await this.#reserve.run(
      ...this.#keysOf(machineId),
      this.#keys.leaderFence,
      assignmentId,
      epoch,
      containerId,
      cpuMillicores,
      memoryBytes,
      memberOf(wanted),
      this.#inFlightMs,
      fence,
      ...gpuUuids,
    );
    return answer as 'reserved' | ReserveConflict;
  }

  /** Confirms a reservation that the container's row names now. @returns false: it had expired and was given back */
  async confirm(owner: ReservationOwner): Promise<boolean> {
    const { reservations, reserving } = this.#keys;
    const held = await this.#confirm.run(reservations(owner.machineId), reserving, owner.assignmentId, memberOf(owner));
    return held === 1;
  }

  /** Gives back what the owner holds. @returns whether this owner held anything */
  async release(owner: ReservationOwner): Promise<boolean> {
    const { machineId, assignmentId, epoch, containerId } = owner;
    const done = await this.#release.run(...this.#keysOf(machineId), assignmentId, epoch, containerId, memberOf(owner));
    return done === 1;
  }

  /**
   * Sets a machine's counts to those given.
   * @returns the differences; undefined: nothing was counted before, or a newer leader counts
   */
  async recount(machine: Countable, fence: number): Promise<Drift | undefined> {
    const held = machine.held.flatMap((one) => [
      one.assignmentId,
      JSON.stringify({
        container: one.containerId,
        epoch: one.epoch,
        cpu: one.cpuMillicores,
        memory: one.memoryBytes,
        devices: one.gpuUuids.join(','),
      }),
    ]);
    const [existed, cpuMillicores = 0, memoryBytes = 0, gpus = 0, reservations = 0, leasedTwice = 0] =
      (await this.#recount.run(
        ...this.#keysOf(machine.machineId),
        this.#keys.leaderFence,
        machine.machineId,
        machine.schedulable ? 1 : 0,
        machine.totalCpuMillicores,
        machine.totalMemoryBytes,
        machine.totalGpus,
        fence,
        ...held,
      )) as number[];
    if (existed !== 1 && leasedTwice === 0) return undefined;
    return { cpuMillicores, memoryBytes, gpus, reservations, leasedTwice };
  }

  /** Owners of overdue reservations in flight, at most a hundred. */
  async overdue(): Promise<readonly ReservationOwner[]> {
    const [seconds] = await this.#client.time();
    const members = await this.#client.zrangebyscore(
      this.#keys.reserving,
      '-inf',
      Number(seconds) * 1000,
      'LIMIT',
      0,
      100,
    );
    return members.map(ownerOf);
  }

  /** Forgets a machine that no longer exists. */
  async forget(machineId: MachineId): Promise<void> {
    await this.#forget.run(...this.#keysOf(machineId), machineId);
  }

  #keysOf(machineId: MachineId): readonly string[] {
    const { capacity, reservations, devices, assignments, reserving } = this.#keys;
    return [capacity(machineId), reservations(machineId), devices(machineId), assignments, reserving];
  }
}

const memberOf = ({ assignmentId, machineId, containerId, epoch }: ReservationOwner): string =>
  `${assignmentId} ${machineId} ${containerId} ${epoch}`;

function ownerOf(member: string): ReservationOwner {
  const [assignmentId = '', machineId = '', containerId = '', epoch = ''] = member.split(' ');
  return {
    assignmentId,
    machineId: machineId as MachineId,
    containerId: containerId as ContainerId,
    epoch: Number(epoch),
  };
}
