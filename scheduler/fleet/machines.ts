// Machines: their rows, their health as this replica sees it, and joining. Sessions
// (session.ts) pass on the agents' reports; placement and the surfaces read.
// A single machine, and facts that follow from it alone: machine.ts, capacity.ts.
import { randomBytes } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { PoolSettings, PoolSettingsChange } from '#shared/api/pools.ts';
import type { InstanceId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { sha256Hex } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type {
  Gpu__Output,
  Hello__Output,
  HostDrain__Output,
  Inventory__Output,
} from '#shared/protocol/generated/messages.ts';
import type { Db } from '../stores/store/db.ts';
import type { MachineRow } from '../stores/store/queries/machines.ts';
import {
  deleteMachine,
  expireJoinSecrets,
  insertMachine,
  joinMachine,
  joinSecretState,
  listMachines,
  lockAdmissions,
  machineById,
  machineKey,
  machinesById,
  machineVersions,
  offerCredential,
  recordHello,
  replaceCredentials,
  touchMachines,
  unjoinedMachines,
  updateMachine,
  useCredential,
} from '../stores/store/queries/machines.ts';
import { getOrCreatePool } from '../stores/store/queries/pools.ts';
import type { ContainerRegistry } from './containers/container-registry.ts';
import { capacityOf } from './capacity.ts';
import type { Capacity } from './capacity.ts';
import {
  conditionWordsOf,
  diskFreeOf,
  volumeBytesHere,
  volumeBytesOf,
  namedConditions,
  orphansOf,
  viewOf,
  wordsAbout,
} from './machine.ts';
import type { Machine, Orphan } from './machine.ts';
import { boundedHost } from './host-facts.ts';
import type { CreatedMachine, MachineService, MachineView } from './machine-service.ts';
import type { FleetMetrics } from './metrics.ts';
import { healthAfter } from './state.ts';
import type { Health, HealthEvent } from './state.ts';

const JOIN_TOKEN_MS = 30 * 60_000;
const TOUCH_EVERY_MS = 30_000;
const RECOUNT_MS = 1_000;
const EXPECTED: ReadonlySet<Health> = new Set<Health>(['READY', 'RECONCILING', 'SUSPECT']);
/** Time for which a credential is valid beside its unused successor. */
const OLD_CREDENTIAL_MS = 5 * 60_000;

const JOIN_REFUSALS = {
  unknown: 'join token is of no machine here; create a machine for a new token',
  expired: 'join token has expired; create a new machine for a new token',
  replayed: 'join token was used already; create a new machine for a new token',
} as const;

/** The bound of all shared pools together; a workspace has its limit `counts.unjoined_machines`. */
const MOST_UNJOINED_SHARED = 1_000;

const tooManyUnjoined = (limit: number): AppError =>
  new AppError(
    'too_many_unjoined',
    `${limit} machines were created and have not joined, and there may be no more: install the agent on them, delete them (\`longshore machine delete\`), or wait until their join tokens have expired (30 minutes)`,
    { details: { limit } },
  );

export class Machines implements MachineService {
  readonly name = 'machines';
  readonly #db: Db;
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #metrics: FleetMetrics;
  readonly #caFingerprint: string;
  readonly #machines = new Map<MachineId, Machine>();
  readonly #listeners: ((machine: Machine) => void)[] = [];
  readonly #written: ((id: MachineId) => void)[] = [];
  readonly #instance: InstanceId | null;
  readonly #isAlive: (replica: InstanceId) => boolean;
  readonly #mostUnjoined: (workspaceId: WorkspaceId | null) => number | Promise<number>;
  #beforeReady: (machine: Machine) => Promise<void> = () => Promise.resolve();
  #refused = 0;
  #expected = { count: 0, atMs: -Infinity };
  readonly #seen = new Set<MachineId>();
  /** Machines whose rows lack the last reported GPUs. */
  readonly #unwritten = new Set<MachineId>();
  readonly #containers: Pick<ContainerRegistry, 'ofMachine'> | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: {
    readonly db: Db;
    readonly log: Log;
    readonly clock: Clock;
    readonly metrics: FleetMetrics;
    readonly caFingerprint: string;
    /** Containers, whose resources count as used on their machines; absent: there are none. */
    readonly containers?: Pick<ContainerRegistry, 'ofMachine'>;
    /** Most machines of a workspace that may wait to join; absent: the bound of the shared pools. */
    readonly mostUnjoinedOf?: (workspaceId: WorkspaceId) => number | Promise<number>;
    /** This replica's id; absent: this process is alone. */
    readonly instance?: InstanceId;
    /** Whether another replica lives: it then holds the links of its machines. */
    readonly isAlive?: (replica: InstanceId) => boolean;
  }) {
    this.#instance = parts.instance ?? null;
    this.#isAlive = parts.isAlive ?? (() => false);
    const { mostUnjoinedOf } = parts;
    this.#mostUnjoined = (id) => (id === null ? MOST_UNJOINED_SHARED : (mostUnjoinedOf?.(id) ?? MOST_UNJOINED_SHARED));
    this.#db = parts.db;
    this.#containers = parts.containers;
    this.#log = parts.log;
    this.#clock = parts.clock;
    this.#metrics = parts.metrics;
    this.#caFingerprint = parts.caFingerprint;
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
    this.#timer = setInterval(() => void this.#writeSeen(), TOUCH_EVERY_MS);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#writeSeen();
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

  #silentNow(machine: Machine): void {
    machine.suspectSinceMs = this.#clock.nowMs();
    machine.silentFromMs = this.#clock.monotonicMs();
  }

  /** Makes a move that the table lists. @returns whether the machine moved */
  #move(machine: Machine, event: HealthEvent): boolean {
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
      else if (this.#learn(row)) onSuperseded(id);
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

  /**
   * The machine, if that version of its credential is valid. Another replica may have made, joined or renewed it a
   * moment ago. The first use of a new credential invalidates the one before.
   */
  async withCredential(id: MachineId, version: number): Promise<Machine | undefined> {
    const known = this.#machines.get(id);
    if (known !== undefined && this.#counts(known.row, version)) return known;
    let row = await machineById(this.#db, id);
    if (row?.credentialNext === version) {
      row = (await useCredential(this.#db, id, version)) ?? (await machineById(this.#db, id));
      this.#wrote(id);
    }
    if (row === undefined || !this.#counts(row, version)) return undefined;
    this.#learn(row);
    return this.#machines.get(id);
  }

  #counts(row: MachineRow, version: number): boolean {
    const isOver = row.credentialNextAtMs !== null && this.#clock.nowMs() - row.credentialNextAtMs > OLD_CREDENTIAL_MS;
    return row.credentialVersion === version && !isOver;
  }

  /** Offers a machine a new credential. @returns its version @throws AppError `machine_not_found` */
  offerCredential(id: MachineId): Promise<number> {
    return this.#versionAfter(id, offerCredential(this.#db, id, this.#clock.nowMs()));
  }

  /** Replaces a machine's credentials by a new one. @returns its version @throws AppError `machine_not_found` */
  replaceCredentials(id: MachineId): Promise<number> {
    return this.#versionAfter(id, replaceCredentials(this.#db, id));
  }

  async #versionAfter(id: MachineId, written: Promise<MachineRow | undefined>): Promise<number> {
    const row = await written;
    if (row === undefined) throw new AppError('machine_not_found', `machine ${id} does not exist any more`);
    this.#learn(row);
    this.#wrote(id);
    return row.credentialNext ?? row.credentialVersion;
  }

  /** Public key that a machine proves itself with; also of deleted machines. */
  keyOf(id: string): ReturnType<typeof machineKey> {
    return machineKey(this.#db, id);
  }

  /** Takes over a row of another replica. @returns true: the session here is not the machine's newest */
  #learn(row: MachineRow): boolean {
    const known = this.#machines.get(row.id);
    if (known !== undefined && row.sessionEpoch < known.row.sessionEpoch) return false;
    if (known?.sessionId === undefined) {
      const learned = this.#asRow(row, row.health as Health, known);
      this.#machines.set(row.id, learned);
      this.#tell(learned);
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
    if (row.health !== health && (row.health === 'SUSPECT' || row.health === 'LOST')) void this.#write(known);
    this.#tell(known);
    return false;
  }

  /**
   * Marks a machine whose link's replica is dead: SUSPECT until it redials another.
   * @param fence - the fencing number of the leader, whose decision it is
   */
  async orphaned(machine: Machine, fence: number): Promise<void> {
    if (machine.sessionId !== undefined || machine.health === 'SUSPECT' || machine.health === 'LOST') return;
    if (!(await this.#decide(machine, 'silent', fence))) return;
    this.#silentNow(machine);
    this.#metrics.disconnects.inc({ pool: machine.row.poolName, reason: 'replica_died' });
    this.#log.warn({ machineId: machine.row.id, replica: machine.row.replica }, 'machine suspect: its replica died');
    this.#tell(machine);
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

  // ---- CreateMachine, lists -----------------------------------------------------------------------------------------

  /**
   * Creates a machine.
   * @param settings - of the pool, where this call makes it
   * @throws AppError `too_many_unjoined` (details.limit): so many of the owner's machines have not joined and still may
   */
  async create(
    owner: { readonly workspaceId: WorkspaceId | null },
    poolName: string,
    settings: PoolSettingsChange = {},
  ): Promise<CreatedMachine> {
    const nowMs = this.#clock.nowMs();
    const most = await this.#mostUnjoined(owner.workspaceId);
    // A flood is refused from memory; the database decides below.
    if (this.#pendingOf(owner.workspaceId, nowMs) >= most) throw tooManyUnjoined(most);
    const pool = await getOrCreatePool(this.#db, { name: poolName, workspaceId: owner.workspaceId, settings });
    const secret = randomBytes(32).toString('base64url');
    const expiresAtMs = nowMs + JOIN_TOKEN_MS;
    const { row, replaced } = await this.#db.transaction(async (tx) => {
      await lockAdmissions(tx, owner.workspaceId);
      const { count, expired } = await unjoinedMachines(tx, owner.workspaceId, nowMs);
      // Expired machines make room, the oldest first.
      const leave = expired.slice(0, Math.max(0, count + 1 - most));
      if (count - leave.length >= most) throw tooManyUnjoined(most);
      for (const id of leave) await deleteMachine(tx, id);
      const made = await insertMachine(tx, {
        id: randomBytes(4).toString('hex') as MachineId,
        poolId: pool.id,
        joinSecretHash: Buffer.from(sha256Hex(secret), 'hex'),
        joinExpiresAtMs: expiresAtMs,
      });
      return { row: made, replaced: leave };
    });
    for (const id of replaced) this.deleted(id);
    this.#machines.set(row.id, {
      row,
      health: 'PENDING',
      inventory: null,
      conditions: [],
      sessionId: undefined,
      suspectSinceMs: null,
      silentFromMs: null,
      lastSeenAtMs: null,
      diskFreeBytes: null,
      rebooted: false,
      orphans: new Map(),
    });
    this.#wrote(row.id);
    return {
      machineId: row.id,
      poolName: pool.name,
      joinToken: `lsj1.${this.#caFingerprint}.${secret}`,
      expiresAtMs,
      createdAtMs: row.createdAtMs,
    };
  }

  /** Machines of the owner that may still join. */
  #pendingOf(workspaceId: WorkspaceId | null, nowMs: number): number {
    let count = 0;
    for (const { row } of this.#machines.values()) {
      const mayJoin = row.joinedAtMs === null && (row.joinExpiresAtMs ?? 0) > nowMs;
      if (mayJoin && row.poolWorkspaceId === workspaceId) count += 1;
    }
    return count;
  }

  async list(owner: { readonly workspaceId: WorkspaceId | null }): Promise<readonly MachineView[]> {
    await this.expireJoins();
    return [...this.#machines.values()]
      .filter((machine) => machine.row.poolWorkspaceId === owner.workspaceId)
      .map((machine) => viewOf(machine, this.capacity(machine), this.#clock.nowMs()))
      .sort((a, b) => a.poolName.localeCompare(b.poolName) || a.machineId.localeCompare(b.machineId));
  }

  /** Marks machines that did not join in time as EXPIRED: their join secret is no longer valid. */
  async expireJoins(): Promise<void> {
    const nowMs = this.#clock.nowMs();
    const overdue = [...this.#machines.values()].filter(
      ({ health, row }) => health === 'PENDING' && row.joinedAtMs === null && (row.joinExpiresAtMs ?? nowMs) <= nowMs,
    );
    if (overdue.length === 0) return;
    await expireJoinSecrets(this.#db, nowMs);
    for (const machine of overdue) {
      // The machine may have joined meanwhile.
      if (machine.row.joinedAtMs !== null || !this.#move(machine, 'join_expired')) continue;
      this.#wrote(machine.row.id);
      this.#tell(machine);
    }
  }

  /** Capacity that the machine offers, and the free part of it. */
  capacity(machine: Machine): Capacity {
    return capacityOf(machine, this.#containers?.ofMachine(machine.row.id) ?? []);
  }

  // ---- joining and sessions -----------------------------------------------------------------------------------------

  /** Swaps a join token for an identity. @throws AppError `join_token_invalid` */
  async join(request: {
    readonly secret: string;
    readonly nonce: string;
    readonly fingerprint: string;
    readonly publicKey: string;
    readonly hostname: string;
    readonly agentVersion: string;
  }): Promise<MachineRow> {
    const secretHash = Buffer.from(sha256Hex(request.secret), 'hex');
    const row = await joinMachine(this.#db, {
      secretHash,
      nonce: request.nonce,
      fingerprint: request.fingerprint,
      publicKey: request.publicKey,
      hostname: request.hostname,
      agentVersion: request.agentVersion,
      nowMs: this.#clock.nowMs(),
    });
    if (row === undefined) {
      const state = await joinSecretState(this.#db, secretHash);
      const result = state === undefined ? 'unknown' : state.joinedAtMs === null ? 'expired' : 'replayed';
      this.#metrics.joins.inc({ result });
      const { fingerprint, hostname } = request;
      this.#log.warn({ result, machineId: state?.id, fingerprint, hostname }, 'join token refused');
      throw new AppError('join_token_invalid', JOIN_REFUSALS[result]);
    }
    this.#metrics.joins.inc({ result: 'joined' });
    const machine = this.#machines.get(row.id);
    if (machine !== undefined) machine.row = row;
    this.#wrote(row.id);
    return row;
  }

  /** A control stream said hello: the newer session wins. */
  async hello(machineId: MachineId, sessionId: string, hello: Hello__Output): Promise<Machine> {
    const conditions = hello.conditions ? namedConditions(hello.conditions.names) : null;
    const conditionWords = { ...wordsAbout(conditions ?? [], hello.conditions?.words) };
    // An agent that has just started has not counted yet.
    const before = this.#machines.get(machineId);
    const volumeBytes = before === undefined ? {} : { ...volumeBytesHere(before) };
    const inventory =
      hello.inventory === null
        ? null
        : { ...hello.inventory, host: boundedHost(hello.inventory.host), conditionWords, volumeBytes };
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
    this.#machines.set(machineId, machine);
    this.#wrote(machineId);
    this.#tell(machine);
    return machine;
  }

  /**
   * Stores the containers that an agent reports and no row places
   * there. The list goes into the row too, for the replica that leads.
   */
  async setOrphans(machineId: MachineId, sessionId: string, orphans: readonly Orphan[]): Promise<void> {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId || isDeepStrictEqual([...machine.orphans.values()], orphans)) return;
    machine.orphans = new Map(orphans.map((one) => [one.containerId, one]));
    this.#tell(machine);
    await updateMachine(this.#db, machineId, { orphans, ifSessionEpoch: machine.row.sessionEpoch });
    this.#wrote(machineId);
  }

  /** Sets the work that is done before a machine that has reported gets tasks again. */
  beforeReady(work: (machine: Machine) => Promise<void>): void {
    this.#beforeReady = work;
  }

  /** Called once the machine's whole report has been handled: its containers and devices are counted anew. */
  async reported(machineId: MachineId, sessionId: string): Promise<void> {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId === sessionId) await this.#beforeReady(machine);
  }

  ready(machineId: MachineId, sessionId: string): void {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId || !this.#move(machine, 'resolved')) return;
    void this.#write(machine);
    this.#log.info({ machineId, pool: machine.row.poolName }, 'machine ready');
    this.#tell(machine);
  }

  /**
   * The session ended or stopped answering: nothing new goes to the machine, and its containers stay until it is LOST.
   */
  suspect(machineId: MachineId, sessionId: string, reason: string): void {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId) return;
    machine.sessionId = undefined;
    if (!this.#move(machine, 'silent')) return;
    this.#silentNow(machine);
    const goodbye = reason.startsWith('goodbye_') ? reason.slice('goodbye_'.length) : null;
    if (goodbye !== null) machine.row = { ...machine.row, goodbye };
    this.#metrics.disconnects.inc({ pool: machine.row.poolName, reason });
    void this.#write(machine);
    this.#log.warn({ machineId, reason }, 'machine suspect');
    this.#tell(machine);
  }

  /**
   * Marks a machine that was silent for too long.
   * @param fence - the fencing number of the leader, whose decision it is
   * @returns whether it counts as lost now
   */
  async lost(machine: Machine, fence: number): Promise<boolean> {
    if (!(await this.#decide(machine, 'overdue', fence))) return false;
    this.#log.warn({ machineId: machine.row.id }, 'machine lost');
    this.#tell(machine);
    return true;
  }

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
    if (changed) this.#tell(machine);
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

  /** Bytes of volumes on the disks of all machines, as last counted; of one workspace, else of all. */
  volumeBytes(workspaceId?: WorkspaceId): number {
    let sum = 0;
    for (const machine of this.#machines.values())
      for (const [owner, bytes] of Object.entries(volumeBytesHere(machine)))
        if (workspaceId === undefined || owner === workspaceId) sum += bytes;
    return sum;
  }

  /** Updates the GPUs that the agent reports between two hellos: a state changed, or the list of them. */
  async devices(machineId: MachineId, sessionId: string, gpus: readonly Gpu__Output[]): Promise<void> {
    const machine = this.#machines.get(machineId);
    if (machine?.sessionId !== sessionId || machine.inventory === null) return;
    if (isDeepStrictEqual(machine.inventory.gpus, gpus)) return;
    const inventory = { ...machine.inventory, gpus: [...gpus] };
    machine.inventory = inventory;
    const bad = gpus.filter((gpu) => gpu.unhealthy).map(({ uuid, state, why }) => ({ uuid, state, why }));
    this.#log[bad.length > 0 ? 'warn' : 'info']({ machineId, gpus: gpus.length, bad }, 'GPUs of a machine changed');
    this.#tell(machine);
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
        this.#wrote(row.id);
      }
      if (machine.inventory === inventory) this.#unwritten.delete(row.id);
    } catch (error) {
      this.#log.warn({ err: error, machineId: row.id }, 'GPUs of a machine not written, trying again');
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
      this.#wrote(row.id);
    } catch (error) {
      this.#log.warn({ err: error, machineId: row.id }, 'machine conditions not written, trying again');
    }
  }

  /** Takes over a change that was just written to the row, such as the operator's intent. */
  setRow(machine: Machine, change: Partial<MachineRow>): void {
    // A hello that came meanwhile has put another object in its place.
    const present = this.#machines.get(machine.row.id) ?? machine;
    present.row = { ...present.row, ...change };
    this.#wrote(present.row.id);
    this.#tell(present);
  }

  /**
   * Takes over written settings of a pool.
   * @param ids - the machines in it, by the rows: a machine that another replica made a moment ago is read from its row
   */
  poolChanged(ids: readonly MachineId[], poolSettings: PoolSettings): void {
    for (const id of ids) {
      const machine = this.#machines.get(id);
      if (machine === undefined) this.#wrote(id);
      else this.setRow(machine, { poolSettings });
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
    this.setRow(machine, { hostDrainUntilMs });
  }

  #untilOf(said: HostDrain__Output | null): number | null {
    return said?.on === true ? this.#clock.nowMs() + said.secondsLeft * 1000 : null;
  }

  /** The machine was deleted here: no message of it counts any more, on any replica. */
  deleted(id: MachineId): void {
    this.forget(id);
    this.#wrote(id);
  }

  /** The machine was deleted: no message of it counts any more. */
  forget(id: MachineId): void {
    const machine = this.#machines.get(id);
    if (machine === undefined) return;
    this.#machines.delete(id);
    this.#seen.delete(id);
    this.#unwritten.delete(id);
    this.#tell(machine);
  }

  async byId(id: MachineId): Promise<MachineRow | undefined> {
    return await machineById(this.#db, id);
  }

  /**
   * The leader's decision about a silent machine; the row is written first.
   * @returns false: not written, or the machine has another session by now; memory follows the row.
   * @throws the database's errors
   */
  async #decide(machine: Machine, event: HealthEvent, fence: number): Promise<boolean> {
    const { id, sessionEpoch: ifSessionEpoch } = machine.row;
    const health = healthAfter(machine.health, event);
    if (health === undefined) return this.#move(machine, event);
    if (await updateMachine(this.#db, id, { health, ifSessionEpoch, fence })) {
      this.#wrote(id);
      return this.#machines.get(id) === machine && this.#move(machine, event);
    }
    this.#log.warn({ machineId: id, event, fence }, 'a write of a leader that was superseded is refused');
    await this.readAgain([id], () => undefined);
    return false;
  }

  async #write(machine: Machine): Promise<void> {
    try {
      await updateMachine(this.#db, machine.row.id, {
        health: machine.health,
        ...(machine.row.goodbye === null ? {} : { goodbye: machine.row.goodbye }),
        ifSessionEpoch: machine.row.sessionEpoch,
      });
      this.#wrote(machine.row.id);
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

  #wrote(id: MachineId): void {
    for (const listener of this.#written) listener(id);
  }

  #tell(machine: Machine): void {
    for (const listener of this.#listeners) listener(machine);
  }
}
