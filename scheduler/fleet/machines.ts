// Machines as this replica knows them: their rows, their health, and what other replicas wrote. Agents' reports
// (agent-reports.ts), joining (joining.ts) and credentials (credentials.ts) write through it; placement and the
// surfaces read. A single machine, and facts that follow from it alone: machine.ts, capacity.ts.
import type { PoolSettings } from '#shared/api/pools.ts';
import type { InstanceId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Inventory__Output } from '#shared/protocol/generated/messages.ts';
import type { Db } from '../stores/store/db.ts';
import type { MachineRow } from '../stores/store/queries/machines.ts';
import {
  listMachines,
  machineById,
  machinesById,
  machineVersions,
  updateMachine,
} from '../stores/store/queries/machines.ts';
import type { ContainerRegistry } from './containers/container-registry.ts';
import { capacityOf } from './capacity.ts';
import type { Capacity } from './capacity.ts';
import { orphansOf, volumeBytesHere } from './machine.ts';
import type { Machine } from './machine.ts';
import type { MachineEvents, MachineStatus } from './machine-events.ts';
import type { FleetMetrics } from './metrics.ts';
import { healthAfter } from './state.ts';
import type { Health, HealthEvent } from './state.ts';

const RECOUNT_MS = 1_000;
const EXPECTED: ReadonlySet<Health> = new Set<Health>(['READY', 'RECONCILING', 'SUSPECT']);

/** Healths that events tell. */
const TOLD: Readonly<Partial<Record<Health, MachineStatus>>> = { READY: 'ready', SUSPECT: 'suspect', LOST: 'lost' };

export class Machines {
  readonly name = 'machines';
  readonly #db: Db;
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #metrics: FleetMetrics;
  readonly #machines = new Map<MachineId, Machine>();
  readonly #listeners: ((machine: Machine) => void)[] = [];
  readonly #written: ((id: MachineId) => void)[] = [];
  readonly #isAlive: (replica: InstanceId) => boolean;
  #refused = 0;
  #expected = { count: 0, atMs: -Infinity };
  readonly #containers: Pick<ContainerRegistry, 'ofMachine'> | undefined;
  readonly #told: Pick<MachineEvents, 'write'> | undefined;

  constructor(parts: {
    readonly db: Db;
    readonly log: Log;
    readonly clock: Clock;
    readonly metrics: FleetMetrics;
    /** Containers, whose resources count as used on their machines; absent: there are none. */
    readonly containers?: Pick<ContainerRegistry, 'ofMachine'>;
    /** Whether another replica lives: it then holds the links of its machines. */
    readonly isAlive?: (replica: InstanceId) => boolean;
    /** Writer of events; absent: nothing is told. */
    readonly machineEvents?: Pick<MachineEvents, 'write'>;
  }) {
    this.#isAlive = parts.isAlive ?? (() => false);
    this.#told = parts.machineEvents;
    this.#db = parts.db;
    this.#containers = parts.containers;
    this.#log = parts.log;
    this.#clock = parts.clock;
    this.#metrics = parts.metrics;
  }

  /**
   * Known machines come up SUSPECT, except those that another replica holds the link of and those that were lost
   * already. Each may take its time to redial (the grace after a start), then counts as lost.
   */
  async start(): Promise<void> {
    for (const row of await listMachines(this.#db)) {
      const linked = row.replica !== null && this.#isAlive(row.replica);
      const keeps = row.joinedAtMs === null || linked || row.health === 'LOST';
      const health = keeps ? (row.health as Health) : 'SUSPECT';
      this.#machines.set(row.id, this.#asRow(row, health, undefined));
    }
  }

  get(id: MachineId): Machine | undefined {
    return this.#machines.get(id);
  }

  /**
   * When the machine went silent, as epoch milliseconds by the wall clock of now:
   * setting the clock makes no machine silent for longer. null: not silent, or unknown.
   */
  silentSinceMs(id: MachineId): number | null {
    const fromMs = this.#machines.get(id)?.silentFromMs ?? null;
    return fromMs === null ? null : this.#clock.nowMs() - (this.#clock.monotonicMs() - fromMs);
  }

  /**
   * Number of machines that are linked, or may dial again any moment. Machines that never joined
   * and lost ones do not count, so that nobody slows the fleet down by creating machines. Counted
   * anew at most once a second: a thousand agents that dial together ask a thousand times.
   */
  expected(): number {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#expected.atMs >= RECOUNT_MS) {
      const count = [...this.#machines.values()].filter(({ health }) => EXPECTED.has(health)).length;
      this.#expected = { count, atMs: nowMs };
    }
    return this.#expected.count;
  }

  all(): Iterable<Machine> {
    return this.#machines.values();
  }

  /** Capacity that the machine offers, and the free part of it. */
  capacity(machine: Machine): Capacity {
    return capacityOf(machine, this.#containers?.ofMachine(machine.row.id) ?? []);
  }

  /** Bytes of volumes on the disks of all machines, as last counted; of one workspace, else of all. */
  volumeBytes(workspaceId?: WorkspaceId): number {
    let sum = 0;
    for (const machine of this.#machines.values())
      for (const [owner, bytes] of Object.entries(volumeBytesHere(machine)))
        if (workspaceId === undefined || owner === workspaceId) sum += bytes;
    return sum;
  }

  async byId(id: MachineId): Promise<MachineRow | undefined> {
    return await machineById(this.#db, id);
  }

  get refusedTransitions(): number {
    return this.#refused;
  }

  onChange(listener: (machine: Machine) => void): void {
    this.#listeners.push(listener);
  }

  /** Calls the listener for every row written here, so that the other replicas read it. */
  onWritten(listener: (id: MachineId) => void): void {
    this.#written.push(listener);
  }

  // ---- what other replicas wrote ------------------------------------------------------------------------------------

  /**
   * Reads these machines' rows again.
   * @param onSuperseded - called when a machine linked here has a newer session elsewhere
   */
  async readAgain(ids: readonly MachineId[], onSuperseded: (id: MachineId) => void): Promise<void> {
    const rows = new Map((await machinesById(this.#db, ids)).map((row) => [row.id, row]));
    for (const id of ids) {
      const row = rows.get(id);
      if (row === undefined) this.forget(id);
      else if (this.learn(row)) onSuperseded(id);
    }
  }

  /** Reads rows that other replicas wrote while their messages may have been lost. */
  async readMissed(onSuperseded: (id: MachineId) => void): Promise<void> {
    const versions = await machineVersions(this.#db);
    const differing: MachineId[] = [...this.#machines.keys()].filter((id) => !versions.has(id));
    for (const [id, { updatedAtMs, lastSeenAtMs }] of versions) {
      const known = this.#machines.get(id);
      if (known?.row.updatedAtMs !== updatedAtMs) differing.push(id);
      else if (known.sessionId === undefined) known.lastSeenAtMs = lastSeenAtMs;
    }
    if (differing.length > 0) await this.readAgain(differing, onSuperseded);
  }

  /** Takes over a row from the database. @returns true: the session here is not the machine's newest */
  learn(row: MachineRow): boolean {
    const known = this.#machines.get(row.id);
    if (known !== undefined && row.sessionEpoch < known.row.sessionEpoch) return false;
    if (known?.sessionId === undefined) {
      const learned = this.#asRow(row, row.health as Health, known);
      this.#machines.set(row.id, learned);
      this.changed(learned);
      return false;
    }
    if (row.sessionEpoch > known.row.sessionEpoch) {
      this.#machines.set(row.id, this.#asRow(row, row.health as Health, known));
      return true;
    }
    const { health } = known;
    known.row = row;
    // Another replica declared this one dead and marked its machines SUSPECT
    // or LOST. The machines are connected here: write their health again.
    if (row.health !== health && (row.health === 'SUSPECT' || row.health === 'LOST')) void this.writeHealth(known);
    this.changed(known);
    return false;
  }

  #asRow(row: MachineRow, health: Health, before: Machine | undefined): Machine {
    const away = health === 'SUSPECT' || health === 'LOST';
    return {
      row,
      health,
      inventory: row.inventory as Inventory__Output | null,
      conditions: row.conditions,
      sessionId: undefined,
      suspectSinceMs: away ? (before?.suspectSinceMs ?? this.#silentSince(row)) : null,
      silentFromMs: away ? (before?.silentFromMs ?? this.#silentFrom(row)) : null,
      lastSeenAtMs: row.lastSeenAtMs,
      // The free space at the start of its session, elsewhere or long ago, says nothing about now.
      diskFreeBytes: null,
      rebooted: before?.rebooted ?? false,
      orphans: orphansOf(row),
    };
  }

  /**
   * Epoch milliseconds since when the machine is silent. A machine that
   * was lost before this process started is silent since it was last seen.
   */
  #silentSince(row: MachineRow): number {
    return row.health === 'LOST' ? (row.lastSeenAtMs ?? this.#clock.nowMs()) : this.#clock.nowMs();
  }

  /** The start of the silence as monotonic time of this process. */
  #silentFrom(row: MachineRow): number {
    return this.#clock.monotonicMs() - Math.max(0, this.#clock.nowMs() - this.#silentSince(row));
  }

  // ---- what this replica wrote -------------------------------------------------------------------------------------

  /** Takes in a machine whose row was just made here. */
  created(row: MachineRow): void {
    this.#machines.set(row.id, this.#asRow(row, 'PENDING', undefined));
    this.wrote(row.id);
  }

  /** Takes in a machine in place of the one known by its id. */
  put(machine: Machine): void {
    this.#machines.set(machine.row.id, machine);
  }

  /** Takes over a change that was just written to the row, such as the operator's intent. */
  setRow(machine: Machine, change: Partial<MachineRow>): void {
    // A hello that came meanwhile has put another object in its place.
    const present = this.#machines.get(machine.row.id) ?? machine;
    present.row = { ...present.row, ...change };
    this.wrote(present.row.id);
    this.changed(present);
  }

  /**
   * Takes over written settings of a pool.
   * @param ids - the machines in it, by the rows: a machine that another replica made a moment ago is read from its row
   */
  poolChanged(ids: readonly MachineId[], poolSettings: PoolSettings): void {
    for (const id of ids) {
      const machine = this.#machines.get(id);
      if (machine === undefined) this.wrote(id);
      else this.setRow(machine, { poolSettings });
    }
  }

  /** The machine was deleted here: no message of it counts any more, on any replica. */
  deleted(id: MachineId): void {
    this.forget(id);
    this.wrote(id);
  }

  /** The machine was deleted: no message of it counts any more. */
  forget(id: MachineId): void {
    const machine = this.#machines.get(id);
    if (machine === undefined) return;
    this.#machines.delete(id);
    this.changed(machine);
  }

  /** Makes a move that the table lists. @returns whether the machine moved */
  move(machine: Machine, event: HealthEvent): boolean {
    const to = healthAfter(machine.health, event);
    if (to === undefined) {
      this.#refused += 1;
      const { health } = machine;
      this.#log.info({ machineId: machine.row.id, health, event }, 'machine transition refused');
      return false;
    }
    machine.health = to;
    return true;
  }

  /** The machine is silent from now on. */
  fellSilent(machine: Machine): void {
    machine.suspectSinceMs = this.#clock.nowMs();
    machine.silentFromMs = this.#clock.monotonicMs();
  }

  /** Writes the machine's health; a failure is logged, and the next change of health writes again. */
  async writeHealth(machine: Machine): Promise<void> {
    try {
      const { id, goodbye, sessionEpoch } = machine.row;
      const change = {
        health: machine.health,
        ...(goodbye === null ? {} : { goodbye }),
        ifSessionEpoch: sessionEpoch,
      };
      const status = TOLD[machine.health];
      if (status === undefined || this.#told === undefined) await updateMachine(this.#db, id, change);
      else await this.#told.write(machine.row, status, goodbye ?? '', (tx) => updateMachine(tx, id, change));
      this.wrote(machine.row.id);
    } catch (error) {
      this.#log.warn({ err: error, machineId: machine.row.id }, 'machine health not written');
    }
  }

  /** Says that the machine's row was written here. */
  wrote(id: MachineId): void {
    for (const listener of this.#written) listener(id);
  }

  /** Says that the machine changed in memory. */
  changed(machine: Machine): void {
    for (const listener of this.#listeners) listener(machine);
  }

  // ---- the leader's decisions about silent machines -----------------------------------------------------------------

  /**
   * Marks a machine whose link's replica is dead: SUSPECT until it redials another.
   * @param fence - the fencing number of the leader, whose decision it is
   */
  async orphaned(machine: Machine, fence: number): Promise<void> {
    if (machine.sessionId !== undefined || machine.health === 'SUSPECT' || machine.health === 'LOST') return;
    if (!(await this.#decide(machine, 'silent', fence))) return;
    this.fellSilent(machine);
    this.#metrics.disconnects.inc({ pool: machine.row.poolName, reason: 'replica_died' });
    this.#log.warn({ machineId: machine.row.id, replica: machine.row.replica }, 'machine suspect: its replica died');
    this.changed(machine);
  }

  /**
   * Marks a machine that was silent for too long.
   * @param fence - the fencing number of the leader, whose decision it is
   * @returns whether it counts as lost now
   */
  async lost(machine: Machine, fence: number): Promise<boolean> {
    if (!(await this.#decide(machine, 'overdue', fence))) return false;
    this.#log.warn({ machineId: machine.row.id }, 'machine lost');
    this.changed(machine);
    return true;
  }

  /**
   * The leader's decision about a silent machine; the row is written first.
   * @returns false: not written, or the machine has another session by now; memory follows the row.
   * @throws the database's errors
   */
  async #decide(machine: Machine, event: HealthEvent, fence: number): Promise<boolean> {
    const { id, sessionEpoch: ifSessionEpoch } = machine.row;
    const health = healthAfter(machine.health, event);
    if (health === undefined) return this.move(machine, event);
    const status = TOLD[health];
    const change = { health, ifSessionEpoch, fence };
    const isWritten =
      status === undefined || this.#told === undefined
        ? await updateMachine(this.#db, id, change)
        : await this.#told.write(machine.row, status, event, (tx) => updateMachine(tx, id, change));
    if (isWritten) {
      this.wrote(id);
      return this.#machines.get(id) === machine && this.move(machine, event);
    }
    this.#log.warn({ machineId: id, event, fence }, 'a write of a leader that was superseded is refused');
    await this.readAgain([id], () => undefined);
    return false;
  }
}
