// The limits of workspaces, from memory: read on the way of every call,
// and updated on every replica the moment an administrator changes them.
// Invariant: a read after a change was answered sees the change.
// While the database is away, the limits read before stay in effect.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { noSuchWorkspace } from '../../domain/no-workspace.ts';
import { BoundedMap } from '../deployments/bounded-map.ts';
import type { Db } from '../../stores/store/db.ts';
import { SYSTEM, auditEvent } from '../events/audit.ts';
import type { Actor } from '../events/audit.ts';
import { EventWriter } from '../events/writer.ts';
import { workspaceUse } from '../../stores/store/queries/quotas.ts';
import type { WorkspaceUse } from '../../stores/store/queries/quotas.ts';
import { changeWorkspaceLimits, workspaceById } from '../../stores/store/queries/workspaces.ts';
import type { Invalidation } from './invalidation.ts';
import { DEFAULT_WORKSPACE_LIMITS, changed, limitsOf } from './limits.ts';
import type { LimitsChange, WorkspaceLimits } from './limits.ts';
import { START_LIMITS } from '../deployments/stub-limits.ts';
import type { StubLimits } from '../deployments/stub-limits.ts';

const MAX_WORKSPACES = 10_000;
/** Longest life of an entry: a safety net below the messages. */
const MAX_AGE_MS = 60_000;
const MAX_AGE_WITHOUT_MESSAGES_MS = 1_000;

interface Known {
  readonly limits: WorkspaceLimits;
  readonly readAtMs: number;
}

export interface WorkspaceLimitsParts {
  readonly db: Db;
  readonly clock: Pick<Clock, 'monotonicMs' | 'nowMs'>;
  readonly invalidation?: Pick<Invalidation, 'on' | 'onReset' | 'publish' | 'isLive'>;
  /** `LONGSHORE_MAX_CONTAINERS`: applies where a workspace's limits do not set it. */
  readonly maxContainers: number;
  /** Settings of the scheduler about the time of a start; absent: the defaults. */
  readonly startLimits?: Pick<StubLimits, 'startTimeoutSeconds' | 'maxStartTimeoutSeconds'>;
  /** Writer of events; absent in tools: one that nobody listens to. */
  readonly events?: Pick<EventWriter, 'transaction'>;
}

/** The limits that were set, as `group.name`; null: the default again. */
const limitsChanged = (workspaceId: WorkspaceId, name: string, change: LimitsChange, by: Actor, atMs: number) =>
  auditEvent(
    by,
    'audit.limits.updated',
    {
      workspaceId,
      target: { type: 'workspace', id: workspaceId, name },
      attrs: Object.fromEntries(
        Object.entries(change).flatMap(([group, values]) =>
          Object.entries(values).map(([limit, value]) => [`${group}.${limit}`, value] as const),
        ),
      ),
    },
    atMs,
  );

export class Limits {
  readonly #parts: WorkspaceLimitsParts;
  readonly #defaults: WorkspaceLimits;
  readonly #known = new BoundedMap<WorkspaceId, Known>(MAX_WORKSPACES);
  readonly #reading = new Map<WorkspaceId, Promise<WorkspaceLimits>>();
  readonly #listeners: ((id: WorkspaceId) => void)[] = [];
  /** Grows with every change: a read that began before one is not kept. */
  #generation = 0;

  constructor(parts: WorkspaceLimitsParts) {
    this.#parts = parts;
    const { stub } = DEFAULT_WORKSPACE_LIMITS;
    this.#defaults = { ...DEFAULT_WORKSPACE_LIMITS, stub: { ...stub, max_replicas: parts.maxContainers } };
    parts.invalidation?.on('workspace', (id) => this.#drop(id as WorkspaceId));
    parts.invalidation?.onReset(() => {
      this.#generation++;
      this.#reading.clear();
      // Entries become stale instead of being removed: the next use reads them again.
      for (const [id, { limits }] of [...this.#known]) this.#known.set(id, { limits, readAtMs: -Infinity });
    });
  }

  /** Limits of a workspace; synchronous when they are known. */
  of(id: WorkspaceId): WorkspaceLimits | Promise<WorkspaceLimits> {
    const known = this.#known.get(id);
    if (known === undefined) return this.#read(id);
    const { clock, invalidation } = this.#parts;
    const maxAgeMs = (invalidation?.isLive ?? true) ? MAX_AGE_MS : MAX_AGE_WITHOUT_MESSAGES_MS;
    // Old limits stay in effect while they are read again, and for as long as that fails.
    if (clock.monotonicMs() - known.readAtMs >= maxAgeMs) this.#read(id).catch(() => undefined);
    return known.limits;
  }

  /** Limits without waiting: the known ones, else the defaults while they are read. */
  peek(id: WorkspaceId): WorkspaceLimits {
    return this.known(id) ?? this.#defaults;
  }

  /**
   * Limits that are known.
   * @param whenRead - called once unknown ones were read
   * @returns undefined: they are being read
   */
  known(id: WorkspaceId, whenRead: () => void = () => undefined): WorkspaceLimits | undefined {
    const found = this.of(id);
    if (!(found instanceof Promise)) return found;
    found.then(whenRead, () => undefined);
    return undefined;
  }

  /** The limits by which stubs and deployments are judged. */
  async stubLimits(id: WorkspaceId): Promise<StubLimits> {
    const { stub, tasks, concurrency, counts } = await this.of(id);
    return {
      maxCpuMillicores: stub.cpu_millicores,
      maxMemoryMib: stub.memory_mib,
      maxGpuCount: stub.max_gpu_count,
      maxContainers: stub.max_replicas,
      gpuConcurrency: concurrency.gpu_limit,
      maxRetries: tasks.max_retries,
      maxTtlSeconds: tasks.max_ttl_seconds,
      maxPendingTasks: tasks.max_pending_tasks,
      maxPendingTasksDefault: tasks.max_pending_tasks_default,
      maxDeployments: counts.deployments,
      maxStubs: counts.stubs,
      ...(this.#parts.startLimits ?? START_LIMITS),
    };
  }

  /** Current counts of the things that `counts` and `bytes` bound. */
  counts(id: WorkspaceId): Promise<WorkspaceUse> {
    return workspaceUse(this.#parts.db.reads.of(id), id, this.#parts.clock.nowMs());
  }

  /**
   * Applies an administrator's change; it is in effect on every replica when this resolves.
   * @throws AppError `workspace_not_found`
   */
  async change(id: WorkspaceId, change: LimitsChange, by: Actor = SYSTEM): Promise<WorkspaceLimits> {
    const { db, clock, events = new EventWriter() } = this.#parts;
    const row = isUuid(id)
      ? await events.transaction(db, async (tx, emit) => {
          const written = await changeWorkspaceLimits(tx, id, (stored) => changed(stored, change));
          if (written !== undefined) emit(limitsChanged(written.id, written.name, change, by, clock.nowMs()));
          return written;
        })
      : undefined;
    if (row === undefined) throw noSuchWorkspace();
    this.#drop(id);
    await this.#parts.invalidation?.publish('workspace', id);
    return limitsOf(row.limits, this.#defaults);
  }

  /** Calls the listener when limits of a workspace changed. */
  onChange(listener: (id: WorkspaceId) => void): void {
    this.#listeners.push(listener);
  }

  #drop(id: WorkspaceId): void {
    this.#generation++;
    this.#known.delete(id);
    this.#reading.delete(id);
    this.#tell(id);
  }

  #tell(id: WorkspaceId): void {
    for (const listener of this.#listeners) listener(id);
  }

  #read(id: WorkspaceId): Promise<WorkspaceLimits> {
    const before = this.#reading.get(id);
    if (before !== undefined) return before;
    const generation = this.#generation;
    const reading = workspaceById(this.#parts.db, id)
      .then((row) => {
        const limits = limitsOf(row?.limits, this.#defaults);
        if (generation === this.#generation) this.#known.set(id, { limits, readAtMs: this.#parts.clock.monotonicMs() });
        return limits;
      })
      .finally(() => {
        if (this.#reading.get(id) === reading) this.#reading.delete(id);
      });
    this.#reading.set(id, reading);
    return reading;
  }
}
