// The health of all deployments of a workspace: for each name the sentence that its explanation begins with, the worst
// first. The leader is asked for at most 200 queues by one message.
// Invariants: an answer serves every reader for a second at least, and for ten times the time that it took. Nothing
// runs while nobody reads.
import type { ExplainedScaling } from '#shared/api/explain.ts';
import { timestampOf } from '#shared/api/fields.ts';
import { HEALTH_STATES } from '#shared/api/rest/deployment-health.ts';
import type { HealthRow } from '#shared/api/rest/deployment-health.ts';
import { KeptAnswers } from '#shared/kept-answers.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import type { DeploymentId, QueueName, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { readNamedPool } from '../../control/placement/named-pool-reader.ts';
import type { NamedPool } from '../../domain/named-pool.ts';
import { BUCKET_MS, noBins } from '../../domain/task-histogram.ts';
import { poolNameOf } from '../../domain/pools.ts';
import { startTimeoutMsOf } from '../../domain/start-timeout.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { TaskStatistics } from '../../tasks/records/task-stats.ts';
import type { Db } from '../../stores/store/db.ts';
import type { CallsOf, RecentCalls } from '../../stores/store/queries/recent-calls.ts';
import { recentCallsOfMany } from '../../stores/store/queries/recent-calls.ts';
import { namedVersions } from '../../stores/store/queries/rollouts.ts';
import type { NamedVersion } from '../../stores/store/queries/rollouts.ts';
import { BoundedMap } from '../../workspaces/deployments/bounded-map.ts';
import type { Targets } from '../../workspaces/deployments/targets.ts';
import { explainDeployment } from './deployment.ts';
import type { CallsThatEnded } from './failed-calls.ts';
import { failedCallTexts } from './failed-calls.ts';
import { MOST_QUEUES } from './relay.ts';
import { rolloutTexts } from './rollout.ts';
import { RECENT_MS, nextTickOf, oneWorkerInsteadOf } from './service.ts';
import type { ExplainParts } from './service.ts';

export interface HealthParts extends Pick<
  ExplainParts,
  'containers' | 'machines' | 'feasibility' | 'tasks' | 'clock' | 'refusalOf'
> {
  readonly db: Db;
  readonly targets: Pick<Targets, 'byQueue' | 'onChange'>;
  readonly statistics: Pick<TaskStatistics, 'of'>;
  /** The leader's facts about several queues; null: the leader did not answer. */
  readonly scalings: (queues: readonly QueueName[]) => Promise<readonly ExplainedScaling[] | null>;
}

/** A workspace's names, the worst first, as one look saw them. */
export interface Health {
  readonly rows: readonly HealthRow[];
  readonly leaderAnswered: boolean;
  readonly atMs: number;
}

/** Names of a workspace that are looked at. */
const MOST_NAMES = 1_000;
/** Deployments whose calls one statement counts. */
const COUNTED_AT_ONCE = 50;
const KEPT_MS = 1_000;
const LONGEST_KEPT_MS = 5_000;
/** Workspaces whose last look is kept. */
const MOST_WORKSPACES = 500;
/** Failed calls that are remembered. */
const MOST_FAILURES = 1_000;
/** Characters of a result; a failed call with a longer one is read at each look. */
const LONGEST_RESULT = 16 * 1024;

export class DeploymentHealth {
  readonly #parts: HealthParts;
  readonly #kept: KeptAnswers<WorkspaceId, Health>;
  /** Calls that failed, by their ids: they do not change any more. */
  readonly #failures = new BoundedMap<TaskId, CallsThatEnded['last']>(MOST_FAILURES);

  constructor(parts: HealthParts) {
    this.#parts = parts;
    const { clock } = parts;
    this.#kept = new KeptAnswers({ clock, most: MOST_WORKSPACES, leastMs: KEPT_MS, longestMs: LONGEST_KEPT_MS });
    // A deployment that somebody changed is looked at by the next reader.
    parts.targets.onChange(({ target }) => {
      if (target === undefined) this.#kept.clear();
      else this.#kept.delete(target.workspaceId);
    });
  }

  /** The names of a workspace, the worst first. */
  async of(workspaceId: WorkspaceId): Promise<Health> {
    return await this.#kept.of(workspaceId, () => this.#look(workspaceId));
  }

  async #look(workspaceId: WorkspaceId): Promise<Health> {
    const { clock, db, tasks, targets } = this.#parts;
    const [names] = await Promise.all([
      namedVersions(db.reads.of(workspaceId), workspaceId, MOST_NAMES),
      tasks.caughtUp(),
    ]);
    const queues = names.map(({ row }) => queueNameOf(row.id, row.stubId));
    const [found, hours, scalings, calls] = await Promise.all([
      Promise.all(queues.map(async (queue) => await targets.byQueue(queue))),
      this.#hours(workspaceId),
      this.#scalings(queues),
      this.#calls(
        workspaceId,
        names.map(({ row }, at) => ({ stubId: row.stubId, deploymentId: row.id, queue: queues[at]! })),
      ),
    ]);
    const pools = await this.#pools(workspaceId, found);
    const ended = await Promise.all(calls.map((each) => this.#ended(workspaceId, each)));
    const rows = names.map((name, at) =>
      this.#rowOf(name, {
        queue: queues[at]!,
        target: found[at],
        scaling: scalings[at] ?? null,
        ended: ended[at]!,
        hour: hours.get(name.row.id) ?? NO_HOUR,
        pool: pools.get(poolOf(found[at]))!,
      }),
    );
    const leaderAnswered = scalings.length === queues.length;
    return { rows: rows.toSorted(worstFirst), leaderAnswered, atMs: clock.nowMs() };
  }

  /** Calls of the last hour, by deployment. */
  async #hours(workspaceId: WorkspaceId): Promise<ReadonlyMap<DeploymentId, Hour>> {
    const toMs = this.#parts.clock.nowMs();
    const fromMs = (Math.floor(toMs / BUCKET_MS) + 1 - BARS) * BUCKET_MS;
    const { groups } = await this.#parts.statistics.of({ workspaceId, fromMs, toMs }, BUCKET_MS, BARS);
    const hours = new Map<DeploymentId, Hour>();
    for (const { deploymentId, calls, errors, runs, bars } of groups) {
      if (deploymentId === null) continue;
      hours.set(deploymentId, {
        calls,
        errors,
        p50_ms: runs.p50,
        p95_ms: runs.p95,
        bars: [...bars],
      });
    }
    return hours;
  }

  /** Fewer than queues: the leader did not answer. */
  async #scalings(queues: readonly QueueName[]): Promise<readonly ExplainedScaling[]> {
    const told = await Promise.all(parts(queues, MOST_QUEUES).map((some) => this.#parts.scalings(some)));
    return told.some((some) => some === null) ? [] : told.flatMap((some) => some ?? []);
  }

  async #calls(workspaceId: WorkspaceId, of: readonly CallsOf[]): Promise<readonly RecentCalls[]> {
    const sinceMs = this.#parts.clock.nowMs() - RECENT_MS;
    const counted: RecentCalls[] = [];
    // By turns, so that other statements come between.
    for (const some of parts(of, COUNTED_AT_ONCE))
      counted.push(...(await recentCallsOfMany(this.#parts.db.reads.of(workspaceId), some, sinceMs)));
    return counted;
  }

  async #ended(workspaceId: WorkspaceId, calls: RecentCalls): Promise<CallsThatEnded> {
    if (calls.last === undefined) return { calls, last: undefined };
    const { taskId } = calls.last;
    const known = this.#failures.get(taskId);
    if (known !== undefined) return { calls, last: known };
    const { tasks } = this.#parts;
    const record = await tasks.read(workspaceId, taskId);
    if (record === undefined) return { calls, last: undefined };
    const result = await tasks.resultText(record).catch(() => undefined);
    const last = { record, result };
    if ((result?.length ?? 0) > LONGEST_RESULT) return { calls, last };
    this.#failures.set(taskId, last);
    return { calls, last };
  }

  async #pools(
    workspaceId: WorkspaceId,
    found: readonly (Target | undefined)[],
  ): Promise<ReadonlyMap<string, NamedPool>> {
    const names = [...new Set(found.map(poolOf))];
    return new Map(
      await Promise.all(
        names.map(async (name) => [name, await readNamedPool(this.#parts, workspaceId, name)] as const),
      ),
    );
  }

  #rowOf({ row, highest }: NamedVersion, facts: RowFacts): HealthRow {
    const { clock, containers, refusalOf } = this.#parts;
    const { queue, target, scaling, ended, hour, pool } = facts;
    const oneWorker = oneWorkerInsteadOf(containers, queue, target);
    const refusal = (target === undefined ? undefined : refusalOf(target)) ?? '';
    const said = explainDeployment(
      row,
      target?.config.keepWarmSeconds ?? 0,
      scaling,
      {
        refusal,
        pool,
        // Details alone tell of limits.
        quota: [],
        rollout: rolloutTexts({ row, serving: row, highest, limitMs: startTimeoutMsOf(target?.config) }),
        queueControl: target?.queueControl,
        ended,
        ...(oneWorker === undefined ? {} : { oneWorkerInsteadOf: oneWorker }),
      },
      nextTickOf(target, clock.nowMs()),
    );
    const isNewer = highest.version > row.version && highest.rollout !== null;
    return {
      id: row.id,
      name: row.name,
      version: row.version,
      stub_id: row.stubId,
      stub_type: row.stubType,
      app_id: row.appId,
      active: row.active,
      created_at: timestampOf(row.createdAtMs) ?? '',
      needs_attention: needsAttention({
        state: said.state,
        hasStep: said.next_steps.length > 0,
        isRefused: row.active && (refusal !== '' || pool.lack !== undefined),
        isNewerFailed: isNewer && highest.rollout === 'failed',
      }),
      state: said.state,
      since: said.since,
      summary: said.summary,
      waits_for: said.waits_for,
      until: said.until,
      next_step: said.next_steps[0] ?? '',
      ready: scaling?.ready ?? null,
      wanted: scaling?.wanted ?? null,
      waiting: scaling?.waiting ?? null,
      running: scaling?.running ?? null,
      calls: failedCallTexts(ended, row.name).section,
      hour,
      newer: isNewer ? { version: highest.version, rollout: highest.rollout ?? '', why: highest.rolloutWhy } : null,
    };
  }
}

type Hour = HealthRow['hour'];
const BARS = 12;
const NO_HOUR: Hour = { calls: 0, errors: 0, p50_ms: null, p95_ms: null, bars: noBins(BARS) };

interface RowFacts {
  readonly queue: QueueName;
  readonly target: Target | undefined;
  readonly scaling: ExplainedScaling | null;
  readonly ended: CallsThatEnded;
  readonly hour: Hour;
  readonly pool: NamedPool;
}

const poolOf = (target: Target | undefined): string => (target === undefined ? '' : poolNameOf(target.config.extra));

function parts<T>(all: readonly T[], most: number): readonly (readonly T[])[] {
  return Array.from({ length: Math.ceil(all.length / most) }, (_, at) => all.slice(at * most, (at + 1) * most));
}

const BAD: ReadonlySet<string> = new Set(['FAILING', 'DEGRADED']);
const WAITS: ReadonlySet<string> = new Set(['SCALING', 'BUSY']);

/** Whether a deployment needs somebody: it fails, takes no calls, or waits and a person could help. */
export const needsAttention = (of: {
  readonly state: string;
  readonly hasStep: boolean;
  readonly isRefused: boolean;
  readonly isNewerFailed: boolean;
}): boolean => BAD.has(of.state) || of.isRefused || of.isNewerFailed || (of.hasStep && WAITS.has(of.state));

const PLACES = new Map<string, number>(HEALTH_STATES.map((state, at) => [state, at]));

/** The place of a row in the list: those that need somebody first, then by state, then by name. */
export const placeOf = ({ state, needs_attention: needs }: Pick<HealthRow, 'state' | 'needs_attention'>): number =>
  (needs ? 0 : HEALTH_STATES.length) + (PLACES.get(state) ?? HEALTH_STATES.length - 1);

type Placed = Pick<HealthRow, 'state' | 'needs_attention' | 'name' | 'stub_type'>;
export const worstFirst = (a: Placed, b: Placed): number =>
  placeOf(a) - placeOf(b) || compare(a.name, b.name) || compare(a.stub_type, b.stub_type);

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
