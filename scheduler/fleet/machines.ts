// Machines: their rows, their health as this replica sees it, and joining. Sessions (session.ts) tell it what agents say; placement and the surfaces read.
// Health, intent and conditions are kept apart; isPlaceable() combines them.
import { randomBytes } from 'node:crypto';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { sha256Hex } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Hello__Output, Inventory__Output } from '#shared/protocol/generated/messages.ts';
import type { Db } from '../store/db.ts';
import type { MachineRow } from '../store/queries/machines.ts';
import {
  expireJoinSecrets,
  insertMachine,
  joinMachine,
  listMachines,
  machineById,
  recordHello,
  touchMachines,
  updateMachine,
} from '../store/queries/machines.ts';
import { getOrCreatePool } from '../store/queries/pools.ts';
import type { ContainerBook } from '../containers/book.ts';
import type { CreatedMachine, MachineService, MachineView } from './machine-service.ts';
import type { FleetMetrics } from './metrics.ts';

export type Health = 'PENDING' | 'EXPIRED' | 'RECONCILING' | 'READY' | 'SUSPECT' | 'LOST';

export interface Machine {
  row: MachineRow;
  health: Health;
  inventory: Inventory__Output | null;
  conditions: readonly string[];
  /** Names the current session; messages of older ones change nothing. */
  sessionId: string | undefined;
  suspectSinceMs: number | null;
  lastSeenAtMs: number | null;
  /** Of the file system that holds images, as last told; null: not known. */
  diskFreeBytes: number | null;
}

const JOIN_TOKEN_MS = 30 * 60_000;
const TOUCH_EVERY_MS = 30_000;

export class Machines implements MachineService {
  readonly #db: Db;
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #metrics: FleetMetrics;
  readonly #caFingerprint: string;
  readonly #machines = new Map<MachineId, Machine>();
  readonly #listeners: ((machine: Machine) => void)[] = [];
  readonly #seen = new Set<MachineId>();
  #book: ContainerBook | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: {
    readonly db: Db;
    readonly log: Log;
    readonly clock: Clock;
    readonly metrics: FleetMetrics;
    readonly caFingerprint: string;
  }) {
    this.#db = parts.db;
    this.#log = parts.log;
    this.#clock = parts.clock;
    this.#metrics = parts.metrics;
    this.#caFingerprint = parts.caFingerprint;
  }

  attach(book: ContainerBook): void {
    this.#book = book;
  }

  /** Known machines come up SUSPECT: each may take its time to redial (the grace after a start), then counts as lost. */
  async start(): Promise<void> {
    const nowMs = this.#clock.nowMs();
    for (const row of await listMachines(this.#db)) {
      const joined = row.joinedAtMs !== null;
      this.#machines.set(row.id, {
        row,
        health: joined ? 'SUSPECT' : row.health === 'EXPIRED' ? 'EXPIRED' : 'PENDING',
        inventory: row.inventory as Inventory__Output | null,
        conditions: row.conditions,
        sessionId: undefined,
        suspectSinceMs: joined ? nowMs : null,
        lastSeenAtMs: row.lastSeenAtMs,
        diskFreeBytes: diskFreeOf(row.inventory as Inventory__Output | null),
      });
    }
    this.#timer = setInterval(() => void this.#writeSeen(), TOUCH_EVERY_MS);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#writeSeen();
  }

  onChange(listener: (machine: Machine) => void): void {
    this.#listeners.push(listener);
  }

  get(id: MachineId): Machine | undefined {
    return this.#machines.get(id);
  }

  all(): Iterable<Machine> {
    return this.#machines.values();
  }

  // ---- CreateMachine, lists -------------------------------------------------------------------------------------------------------

  async create(
    owner: { readonly workspaceId: WorkspaceId | null },
    poolName: string,
    cpuOvercommit = 1,
  ): Promise<CreatedMachine> {
    const nowMs = this.#clock.nowMs();
    const pool = await getOrCreatePool(this.#db, { name: poolName, workspaceId: owner.workspaceId, cpuOvercommit });
    const secret = randomBytes(32).toString('base64url');
    const expiresAtMs = nowMs + JOIN_TOKEN_MS;
    const row = await insertMachine(this.#db, {
      id: randomBytes(4).toString('hex') as MachineId,
      poolId: pool.id,
      joinSecretHash: Buffer.from(sha256Hex(secret), 'hex'),
      joinExpiresAtMs: expiresAtMs,
    });
    this.#machines.set(row.id, {
      row,
      health: 'PENDING',
      inventory: null,
      conditions: [],
      sessionId: undefined,
      suspectSinceMs: null,
      lastSeenAtMs: null,
      diskFreeBytes: null,
    });
    return {
      machineId: row.id,
      poolName: pool.name,
      joinToken: `lsj1.${this.#caFingerprint}.${secret}`,
      expiresAtMs,
      createdAtMs: row.createdAtMs,
    };
  }

  async list(owner: { readonly workspaceId: WorkspaceId | null }): Promise<readonly MachineView[]> {
    await expireJoinSecrets(this.#db, this.#clock.nowMs());
    return [...this.#machines.values()]
      .filter((machine) => machine.row.poolWorkspaceId === owner.workspaceId)
      .map((machine) => this.#view(machine))
      .sort((a, b) => a.poolName.localeCompare(b.poolName) || a.machineId.localeCompare(b.machineId));
  }

  #view(machine: Machine): MachineView {
    const capacity = this.capacity(machine);
    const gpus = machine.inventory?.gpus ?? [];
    return {
      machineId: machine.row.id,
      poolName: machine.row.poolName,
      status: publicMachineStatus(machine),
      hostname: machine.row.hostname ?? '',
      cpuMillicores: machine.inventory?.cpuMillicores ?? 0,
      memoryMib: Math.floor((machine.inventory?.memoryBytes ?? 0) / (1024 * 1024)),
      gpu: gpus[0]?.model ?? '',
      gpuCount: gpus.length,
      agentVersion: machine.row.agentVersion ?? '',
      createdAtMs: machine.row.createdAtMs,
      lastSeenAtMs: machine.lastSeenAtMs,
      freeCpuMillicores: capacity.freeCpuMillicores,
      freeMemoryMib: Math.floor(capacity.freeMemoryBytes / (1024 * 1024)),
      containerCount: capacity.containers,
    };
  }

  /** What containers may use, less the host's reserve (5 % of memory, a tenth of the cores up to one), and what is left of it. */
  capacity(machine: Machine): {
    readonly totalCpuMillicores: number;
    readonly totalMemoryBytes: number;
    readonly freeCpuMillicores: number;
    readonly freeMemoryBytes: number;
    readonly containers: number;
    readonly leasedGpus: ReadonlySet<string>;
  } {
    const cpu = machine.inventory?.cpuMillicores ?? 0;
    const totalCpuMillicores = Math.floor((cpu - Math.min(1000, cpu / 10)) * machine.row.cpuOvercommit);
    const totalMemoryBytes = Math.floor((machine.inventory?.memoryBytes ?? 0) * 0.95);
    let freeCpuMillicores = totalCpuMillicores;
    let freeMemoryBytes = totalMemoryBytes;
    let containers = 0;
    const leasedGpus = new Set<string>();
    for (const entry of this.#book?.ofMachine(machine.row.id) ?? []) {
      if (entry.row.state === 'PENDING') continue;
      freeCpuMillicores -= entry.spec.cpuMillicores;
      freeMemoryBytes -= entry.spec.memoryBytes;
      for (const uuid of entry.row.gpuUuids) leasedGpus.add(uuid);
      containers += 1;
    }
    return { totalCpuMillicores, totalMemoryBytes, freeCpuMillicores, freeMemoryBytes, containers, leasedGpus };
  }

  // ---- joining and sessions -------------------------------------------------------------------------------------------------------

  /** Swaps a join token for an identity. @throws AppError `join_token_invalid` */
  async join(request: {
    readonly secret: string;
    readonly nonce: string;
    readonly fingerprint: string;
    readonly publicKey: string;
    readonly hostname: string;
    readonly agentVersion: string;
  }): Promise<MachineRow> {
    const row = await joinMachine(this.#db, {
      secretHash: Buffer.from(sha256Hex(request.secret), 'hex'),
      nonce: request.nonce,
      fingerprint: request.fingerprint,
      publicKey: request.publicKey,
      hostname: request.hostname,
      agentVersion: request.agentVersion,
      nowMs: this.#clock.nowMs(),
    });
    if (row === undefined) {
      this.#metrics.joins.inc({ result: 'refused' });
      throw new AppError(
        'join_token_invalid',
        'join token is invalid, expired or already used; create a new machine for a new token',
      );
    }
    this.#metrics.joins.inc({ result: 'joined' });
    const machine = this.#machines.get(row.id);
    if (machine !== undefined) machine.row = row;
    return row;
  }

  /** A control stream said hello: the newer session wins. */
  async hello(machineId: MachineId, sessionId: string, hello: Hello__Output): Promise<Machine> {
    const row = await recordHello(this.#db, {
      id: machineId,
      bootId: hello.bootId,
      agentVersion: hello.version,
      hostname: hello.inventory?.hostname ?? '',
      inventory: hello.inventory ?? {},
    });
    if (row === undefined) throw new AppError('machine_not_found', `machine ${machineId} does not exist any more`);
    const machine: Machine = {
      row,
      health: 'RECONCILING',
      inventory: hello.inventory,
      conditions: [],
      sessionId,
      suspectSinceMs: null,
      lastSeenAtMs: this.#clock.nowMs(),
      diskFreeBytes: diskFreeOf(hello.inventory),
    };
    this.#machines.set(machineId, machine);
    this.#tell(machine);
    return machine;
  }

  ready(machineId: MachineId, sessionId: string): void {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId || machine.health !== 'RECONCILING') return;
    machine.health = 'READY';
    void this.#write(machine);
    this.#log.info({ machineId, pool: machine.row.poolName }, 'machine ready');
    this.#tell(machine);
  }

  /** The session ended or stopped answering: nothing new goes there; nothing is moved before LOST. */
  suspect(machineId: MachineId, sessionId: string, reason: string): void {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId) return;
    machine.sessionId = undefined;
    machine.health = 'SUSPECT';
    machine.suspectSinceMs = this.#clock.nowMs();
    this.#metrics.disconnects.inc({ pool: machine.row.poolName, reason });
    void this.#write(machine);
    this.#log.warn({ machineId, reason }, 'machine suspect');
    this.#tell(machine);
  }

  lost(machine: Machine): void {
    machine.health = 'LOST';
    void this.#write(machine);
    this.#log.warn({ machineId: machine.row.id }, 'machine lost');
    this.#tell(machine);
  }

  heartbeat(machineId: MachineId, sessionId: string, conditions: readonly string[], diskFreeBytes = 0): void {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId) return;
    if (diskFreeBytes > 0) machine.diskFreeBytes = diskFreeBytes;
    machine.lastSeenAtMs = this.#clock.nowMs();
    this.#seen.add(machineId);
    const changed = conditions.join() !== machine.conditions.join();
    machine.conditions = conditions;
    if (!changed) return;
    void updateMachine(this.#db, machineId, { conditions, ifSessionEpoch: machine.row.sessionEpoch }).catch(
      (error: unknown) => this.#log.warn({ err: error, machineId }, 'machine conditions not written'),
    );
    this.#tell(machine);
  }

  /** What the operator wants of it, as written to its row. */
  setIntent(machine: Machine, intent: string): void {
    machine.row = { ...machine.row, intent };
    this.#tell(machine);
  }

  /** Deleted: nothing of it counts any more. */
  forget(id: MachineId): void {
    const machine = this.#machines.get(id);
    if (machine === undefined) return;
    this.#machines.delete(id);
    this.#seen.delete(id);
    this.#tell(machine);
  }

  async byId(id: MachineId): Promise<MachineRow | undefined> {
    return await machineById(this.#db, id);
  }

  async #write(machine: Machine): Promise<void> {
    try {
      await updateMachine(this.#db, machine.row.id, {
        health: machine.health,
        ifSessionEpoch: machine.row.sessionEpoch,
      });
    } catch (error) {
      this.#log.warn({ err: error, machineId: machine.row.id }, 'machine health not written');
    }
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

  #tell(machine: Machine): void {
    for (const listener of this.#listeners) listener(machine);
  }
}

/** Not joined: pending; not active, or its preflight failed: disabled; READY: available; else, joined but not there: registered. */
export function publicMachineStatus(machine: Machine): MachineView['status'] {
  if (machine.health === 'PENDING' || machine.health === 'EXPIRED') return 'pending';
  if (machine.row.intent !== 'active' || machine.conditions.includes('Preflight')) return 'disabled';
  return machine.health === 'READY' ? 'available' : 'registered';
}

const diskFreeOf = (inventory: Inventory__Output | null): number | null =>
  inventory !== null && inventory.diskTotalBytes > 0 ? inventory.diskFreeBytes : null;

const BLOCKING = new Set(['DiskPressure', 'DockerDown', 'ClockSkew', 'AgentTooOld', 'Preflight', 'SuspectHost']);

/** Conditions that keep new containers away. */
export function blockingConditions(machine: Machine): readonly string[] {
  return machine.conditions.filter((condition) => BLOCKING.has(condition));
}
