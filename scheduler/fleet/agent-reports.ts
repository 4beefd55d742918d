// Reports of agents over their sessions, taken into memory and rows: hello, heartbeats, devices, volumes, leftover
// containers, and the end of a session. Sessions (session.ts) and links (links.ts) pass them on.
// Invariant: a message of a session that is not the machine's current one changes nothing.
import { isDeepStrictEqual } from 'node:util';
import type { InstanceId, MachineId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { MOUNT_DRIVERS } from '#shared/domain/volume-drivers.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type {
  BasePythons__Output,
  CachedVolume__Output,
  DeviceReport__Output,
  HostWarning__Output,
  Hello__Output,
  HostDrain__Output,
} from '#shared/protocol/generated/messages.ts';
import type { Db } from '../stores/store/db.ts';
import { recordHello, touchMachines, updateMachine } from '../stores/store/queries/machines.ts';
import { boundedLabels } from './machine.ts';
import { boundedHost, boundedPythons } from './host-facts.ts';
import {
  conditionWordsOf,
  diskFreeOf,
  cachesHere,
  cachesOf,
  volumeBytesHere,
  volumeBytesOf,
  namedConditions,
  orphansOf,
  wordsAbout,
} from './machine.ts';
import type { Machine, Orphan } from './machine.ts';
import type { Machines } from './machines.ts';
import type { FleetMetrics } from './metrics.ts';
import { healthAfter } from './state.ts';

const TOUCH_EVERY_MS = 30_000;

export class AgentReports {
  readonly name = 'reports of agents';
  readonly #machines: Machines;
  readonly #db: Db;
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #metrics: FleetMetrics;
  readonly #instance: InstanceId | null;
  #onCaches: (machineId: MachineId, volumeIds: readonly string[]) => Promise<void> = () => Promise.resolve();
  /** Machines whose last contact is not written yet. */
  readonly #seen = new Set<MachineId>();
  /** Machines whose rows lack the last reported inventory. */
  readonly #unwritten = new Set<MachineId>();
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: {
    readonly machines: Machines;
    readonly db: Db;
    readonly log: Log;
    readonly clock: Clock;
    readonly metrics: FleetMetrics;
    /** This replica's id; absent: this process is alone. */
    readonly instance?: InstanceId;
  }) {
    this.#machines = parts.machines;
    this.#db = parts.db;
    this.#log = parts.log;
    this.#clock = parts.clock;
    this.#metrics = parts.metrics;
    this.#instance = parts.instance ?? null;
  }

  start(): void {
    this.#timer = setInterval(() => void this.#writeSeen(), TOUCH_EVERY_MS);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#writeSeen();
  }

  machineChanged({ row }: Machine): void {
    if (this.#machines.get(row.id) !== undefined) return;
    this.#seen.delete(row.id);
    this.#unwritten.delete(row.id);
  }

  // ---- the session --------------------------------------------------------------------------------------------------

  /** A control stream said hello: the newer session wins. */
  async hello(machineId: MachineId, sessionId: string, hello: Hello__Output): Promise<Machine> {
    const conditions = namedConditions(hello.conditions?.names ?? []);
    const conditionWords = { ...wordsAbout(conditions, hello.conditions?.words) };
    // An agent that has just started has not counted yet.
    const before = this.#machines.get(machineId);
    const volumeBytes = before === undefined ? {} : { ...volumeBytesHere(before) };
    const caches = before === undefined ? [] : [...cachesHere(before)];
    const inventory =
      hello.inventory === null
        ? null
        : {
            ...hello.inventory,
            host: boundedHost(hello.inventory.host),
            labels: boundedLabels(hello.inventory.labels),
            basePythons: boundedPythons(hello.inventory.basePythons),
            basePythonsHere: boundedPythons(hello.inventory.basePythonsHere),
            conditionWords,
            volumeBytes,
            caches,
          };
    const row = await recordHello(this.#db, {
      id: machineId,
      bootId: hello.bootId,
      agentVersion: hello.version,
      hostname: hello.inventory?.hostname ?? '',
      inventory: inventory ?? {},
      conditions,
      replica: this.#instance,
      agentInstance: hello.instanceId,
      hostDrainUntilMs: this.#untilOf(hello.hostDrain),
    });
    if (row === undefined) throw new AppError('machine_not_found', `machine ${machineId} does not exist any more`);
    const known = this.#machines.get(machineId);
    if (row.contestedAtMs !== null && row.contestedAtMs !== known?.row.contestedAtMs) {
      this.#metrics.disconnects.inc({ pool: row.poolName, reason: 'contested' });
      this.#log.error(
        { machineId, hostname: hello.inventory?.hostname, instanceId: hello.instanceId },
        'two agents speak as this machine by turns: its identity was copied; delete the machine, and join its host anew',
      );
    }
    const machine: Machine = {
      row,
      health: (known && healthAfter(known.health, 'hello')) ?? 'RECONCILING',
      inventory,
      conditions: row.conditions,
      sessionId,
      suspectSinceMs: null,
      silentFromMs: null,
      lastSeenAtMs: this.#clock.nowMs(),
      diskFreeBytes: diskFreeOf(hello.inventory),
      rebooted: row.bootIdBefore !== null && row.bootIdBefore !== hello.bootId,
      orphans: orphansOf(row),
    };
    this.#machines.put(machine);
    this.#machines.wrote(machineId);
    this.#machines.changed(machine);
    return machine;
  }

  ready(machineId: MachineId, sessionId: string): void {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId || !this.#machines.move(machine, 'resolved')) return;
    void this.#machines.writeHealth(machine);
    this.#log.info({ machineId, pool: machine.row.poolName }, 'machine ready');
    this.#machines.changed(machine);
  }

  /**
   * The session ended or stopped answering: nothing new goes to the machine, and its containers stay until it is LOST.
   */
  suspect(machineId: MachineId, sessionId: string, reason: string): void {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId) return;
    machine.sessionId = undefined;
    if (!this.#machines.move(machine, 'silent')) return;
    this.#machines.fellSilent(machine);
    const goodbye = reason.startsWith('goodbye_') ? reason.slice('goodbye_'.length) : null;
    if (goodbye !== null) machine.row = { ...machine.row, goodbye };
    this.#metrics.disconnects.inc({ pool: machine.row.poolName, reason });
    void this.#machines.writeHealth(machine);
    this.#log.warn({ machineId, reason }, 'machine suspect');
    this.#machines.changed(machine);
  }

  // ---- what the agent says of its machine ---------------------------------------------------------------------------

  heartbeat(
    machineId: MachineId,
    sessionId: string,
    names: readonly string[],
    diskFreeBytes = 0,
    words: Readonly<Record<string, string>> = {},
  ): void {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId) return;
    if (diskFreeBytes > 0) machine.diskFreeBytes = diskFreeBytes;
    machine.lastSeenAtMs = this.#clock.nowMs();
    this.#seen.add(machineId);
    const conditions = namedConditions(names);
    const isSame = (known: readonly string[]): boolean => known.join() === conditions.join();
    const changed = !isSame(machine.conditions);
    machine.conditions = conditions;
    this.#hearWords(machine, wordsAbout(conditions, words));
    if (changed) this.#machines.changed(machine);
    if (!isSame(machine.row.conditions)) void this.#writeConditions(machine);
    if (this.#unwritten.has(machineId)) void this.#writeInventory(machine);
  }

  /** Stores the agent's words in the inventory, with the rest of its report about the machine. */
  #hearWords(machine: Machine, conditionWords: Readonly<Record<string, string>>): void {
    if (machine.inventory === null || isDeepStrictEqual(conditionWordsOf(machine), conditionWords)) return;
    machine.inventory = { ...machine.inventory, conditionWords: { ...conditionWords } };
    void this.#writeInventory(machine);
  }

  /** Takes in the counted bytes of volumes on the machine's disk. */
  volumeUse(machineId: MachineId, sessionId: string, bytes: Readonly<Record<string, number>>): void {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId || machine.inventory === null) return;
    const volumeBytes = volumeBytesOf(machine, bytes);
    if (isDeepStrictEqual(volumeBytesHere(machine), volumeBytes)) return;
    machine.inventory = { ...machine.inventory, volumeBytes };
    void this.#writeInventory(machine);
  }

  /** Called with the ids of the cache volumes of a machine, at each report. Never rejects. */
  onCaches(handler: (machineId: MachineId, volumeIds: readonly string[]) => Promise<void>): void {
    this.#onCaches = handler;
  }

  /** Takes in the cache volumes on the machine's disk. */
  cacheUse(machineId: MachineId, sessionId: string, volumes: readonly CachedVolume__Output[]): void {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId || machine.inventory === null) return;
    const caches = cachesOf(machine, volumes);
    if (!isDeepStrictEqual(cachesHere(machine), caches)) {
      machine.inventory = { ...machine.inventory, caches };
      this.#machines.changed(machine);
      void this.#writeInventory(machine);
    }
    void this.#onCaches(
      machineId,
      caches.map(({ volumeId }) => volumeId),
    );
  }

  /**
   * Stores the containers that an agent reports and no row places
   * there. The list goes into the row too, for the replica that leads.
   */
  async setOrphans(machineId: MachineId, sessionId: string, orphans: readonly Orphan[]): Promise<void> {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId || isDeepStrictEqual([...machine.orphans.values()], orphans)) return;
    machine.orphans = new Map(orphans.map((one) => [one.containerId, one]));
    this.#machines.changed(machine);
    await updateMachine(this.#db, machineId, { orphans, ifSessionEpoch: machine.row.sessionEpoch });
    this.#machines.wrote(machineId);
  }

  /** Updates the volume drivers that the agent offers beside `local`: its mount helper came, or has other settings. */
  async volumeDrivers(machineId: MachineId, sessionId: string, names: readonly string[]): Promise<void> {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId || machine.inventory === null) return;
    const volumeDrivers = MOUNT_DRIVERS.filter((driver) => names.includes(driver));
    if (isDeepStrictEqual(machine.inventory.volumeDrivers.toSorted(), volumeDrivers.toSorted())) return;
    machine.inventory = { ...machine.inventory, volumeDrivers };
    this.#log.info({ machineId, volumeDrivers }, 'volume drivers of a machine changed');
    this.#machines.changed(machine);
    await this.#writeInventory(machine);
  }

  /** Updates the Pythons of base images that the machine has or can make. */
  async basePythons(
    machineId: MachineId,
    sessionId: string,
    { versions = [], here = [], known }: Partial<BasePythons__Output>,
  ): Promise<void> {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId || machine.inventory === null) return;
    const told = {
      basePythons: boundedPythons(versions),
      basePythonsHere: boundedPythons(here),
      basePythonsKnown: known === true,
    };
    const { basePythons, basePythonsHere, basePythonsKnown } = machine.inventory;
    if (isDeepStrictEqual({ basePythons, basePythonsHere, basePythonsKnown }, told)) return;
    machine.inventory = { ...machine.inventory, ...told };
    this.#machines.changed(machine);
    await this.#writeInventory(machine);
  }

  /** Updates what the hourly checks of the host warn of. */
  async hostWarnings(machineId: MachineId, sessionId: string, warnings: readonly HostWarning__Output[]): Promise<void> {
    const machine = this.#machines.get(machineId);
    const before = machine?.inventory?.host;
    if (machine?.sessionId !== sessionId || machine.inventory === null || !before) return;
    const host = boundedHost({ ...before, warnings: [...warnings] });
    if (isDeepStrictEqual(host, before)) return;
    machine.inventory = { ...machine.inventory, host };
    this.#machines.changed(machine);
    await this.#writeInventory(machine);
  }

  /** Updates the GPUs that the agent reports between two hellos: a state changed, or the list of them. */
  async devices(
    machineId: MachineId,
    sessionId: string,
    { gpus = [], gpuDriver }: Partial<DeviceReport__Output>,
  ): Promise<void> {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId || machine.inventory === null) return;
    // No driver is said while the tool does not answer.
    const driver = gpuDriver || machine.inventory.gpuDriver;
    if (isDeepStrictEqual(machine.inventory.gpus, gpus) && machine.inventory.gpuDriver === driver) return;
    const inventory = { ...machine.inventory, gpus: [...gpus], gpuDriver: driver };
    machine.inventory = inventory;
    const bad = gpus.filter((gpu) => gpu.unhealthy).map(({ uuid, state, why }) => ({ uuid, state, why }));
    this.#log[bad.length > 0 ? 'warn' : 'info']({ machineId, gpus: gpus.length, bad }, 'GPUs of a machine changed');
    this.#machines.changed(machine);
    await this.#writeInventory(machine);
  }

  /** Writes the inventory, in the same way as `#writeConditions`. */
  async #writeInventory(machine: Machine): Promise<void> {
    const { inventory, row } = machine;
    if (inventory === null) return;
    this.#unwritten.add(row.id);
    try {
      if (await updateMachine(this.#db, row.id, { inventory, ifSessionEpoch: row.sessionEpoch })) {
        machine.row = { ...machine.row, inventory };
        this.#machines.wrote(row.id);
      }
      if (machine.inventory === inventory) this.#unwritten.delete(row.id);
    } catch (error) {
      this.#log.warn({ err: error, machineId: row.id }, 'inventory of a machine not written, trying again');
    }
  }

  /**
   * Writes the machine's conditions to its row, because the leader may be
   * another replica. If the write fails, the next heartbeat repeats it.
   */
  async #writeConditions(machine: Machine): Promise<void> {
    const { conditions, row } = machine;
    try {
      if (!(await updateMachine(this.#db, row.id, { conditions, ifSessionEpoch: row.sessionEpoch }))) return;
      machine.row = { ...machine.row, conditions };
      this.#machines.wrote(row.id);
    } catch (error) {
      this.#log.warn({ err: error, machineId: row.id }, 'machine conditions not written, trying again');
    }
  }

  /** Handles the agent's message that its host goes down, or stays after all. */
  async hostDrain(machineId: MachineId, sessionId: string, said: HostDrain__Output): Promise<void> {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId) return;
    const hostDrainUntilMs = this.#untilOf(said);
    this.#log.info({ machineId, on: said.on, seconds: said.secondsLeft }, 'host of a machine goes down, or stays');
    if (!(await updateMachine(this.#db, machineId, { hostDrainUntilMs, ifSessionEpoch: machine.row.sessionEpoch })))
      return;
    this.#machines.setRow(machine, { hostDrainUntilMs });
  }

  #untilOf(said: HostDrain__Output | null): number | null {
    return said?.on === true ? this.#clock.nowMs() + said.secondsLeft * 1000 : null;
  }

  async #writeSeen(): Promise<void> {
    const ids = [...this.#seen];
    this.#seen.clear();
    if (ids.length === 0) return;
    try {
      await touchMachines(this.#db, ids, this.#clock.nowMs());
    } catch (error) {
      this.#log.warn({ err: error }, 'last contacts not written');
    }
  }
}
