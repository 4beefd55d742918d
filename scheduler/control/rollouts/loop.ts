// Rollouts that wait, which the leader ends. A change of the versions or their containers starts a round, and so does a
// timer. Each round reads the rollouts from their rows, so a new leader goes on with them.
// Invariant: a rollout that does not wait any more is never written again.
import type { QueueName } from '#shared/domain/ids.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import { waitsForTurn } from '#shared/domain/pull-turns.ts';
import { isLiveContainer } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { LoopMetrics } from '../../cluster/loop-metrics.ts';
import type { ContainerEntryChange, ContainerRegistry } from '../../fleet/containers/container-registry.ts';
import { startTimeoutMsOf } from '../../domain/start-timeout.ts';
import { USER_CAUSES } from '../../fleet/observe.ts';
import type { Db } from '../../stores/store/db.ts';
import { firstFailedStart } from '../../stores/store/queries/containers.ts';
import type { DeploymentRow } from '../../stores/store/queries/deployments.ts';
import { endRollout, waitingRollouts } from '../../stores/store/queries/rollouts.ts';
import type { WaitingRollout } from '../../stores/store/queries/rollouts.ts';
import { rolledOut } from '../../workspaces/deployments/deployment-events.ts';
import type { TargetChange, Targets } from '../../workspaces/deployments/targets.ts';
import type { EventWriter } from '../../workspaces/events/writer.ts';
import { decideRollout } from './decide.ts';
import type { RolloutDecision, RolloutFacts, VersionFacts } from './decide.ts';

export interface RolloutLoopParts {
  readonly db: Db;
  readonly targets: Pick<Targets, 'byDeployment' | 'changed'>;
  readonly containers: Pick<ContainerRegistry, 'ofQueue'>;
  readonly events: Pick<EventWriter, 'transaction'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly loops: LoopMetrics;
  /** Fencing number of this leader; undefined: another replica leads. */
  readonly fence: () => number | undefined;
  /** Time that a start may take, in milliseconds; absent: the limit of every start. */
  readonly startLimitMs?: number;
}

const COALESCE_MS = 5;
/** Pause between looks while a rollout waits: a message may be lost. */
const LOOK_MS = 2_000;
const SWEEP_MS = 30_000;

export class RolloutLoop {
  readonly name = 'rollouts';
  readonly #parts: RolloutLoopParts;
  /** Queues of both versions of the rollouts that wait. */
  #watched: ReadonlySet<QueueName> = new Set();
  /** For each rollout that waits: when a pull of its image got on last, or when it was seen first. */
  #pulledAtMs: ReadonlyMap<DeploymentRow['id'], number> = new Map();
  #timer: NodeJS.Timeout | undefined;
  /** Whether the timer is that of a change, which a later one may not put off. */
  #isWoken = false;
  #running: Promise<void> | undefined;
  #stopped = true;

  constructor(parts: RolloutLoopParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#stopped = false;
    this.wake();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#running;
  }

  /** Starts a round soon; call it when this replica begins to lead. */
  wake(): void {
    if (this.#stopped || this.#isWoken) return;
    this.#isWoken = true;
    this.#lookIn(COALESCE_MS);
  }

  /** Whether a rollout waits whose older or newer version has that queue. Right on the leader only. */
  watches(queue: QueueName): boolean {
    return this.#watched.has(queue);
  }

  targetChanged({ target }: TargetChange): void {
    if (target?.rollout === 'waiting' || this.#watched.size > 0) this.wake();
  }

  containerChanged({ entry }: ContainerEntryChange): void {
    if (this.#watched.has(entry.spec.queue)) this.wake();
  }

  #lookIn(delayMs: number): void {
    clearTimeout(this.#timer);
    if (this.#stopped) return;
    this.#timer = setTimeout(() => {
      this.#running = (this.#running ?? Promise.resolve()).then(() => this.#round());
    }, delayMs);
    this.#timer.unref();
  }

  async #round(): Promise<void> {
    const { fence, loops, log } = this.#parts;
    this.#isWoken = false;
    try {
      if (fence() === undefined) {
        this.#watched = new Set();
        this.#pulledAtMs = new Map();
      } else await loops.round('rollouts', () => this.#decideAll());
    } catch (error) {
      log.warn({ err: error }, 'rollouts could not be looked at, trying again');
    }
    if (!this.#isWoken) this.#lookIn(this.#watched.size > 0 ? LOOK_MS : SWEEP_MS);
  }

  async #decideAll(): Promise<void> {
    const waiting = await waitingRollouts(this.#parts.db);
    this.#watched = new Set(
      waiting.flatMap(({ newer, older }) => [newer, ...(older === null ? [] : [older])]).map(queueOf),
    );
    this.#pulledAtMs = new Map(waiting.map(({ newer }) => [newer.id, this.#lastPullAtMs(newer)]));
    for (const rollout of waiting) {
      const decision = decideRollout(await this.#factsOf(rollout), this.#parts.clock.nowMs());
      await this.#carryOut(rollout.newer, decision);
    }
  }

  async #factsOf({ newer, older }: WaitingRollout): Promise<RolloutFacts> {
    const { db, clock, startLimitMs } = this.#parts;
    const sinceMs = newer.rolloutSinceMs ?? clock.nowMs();
    const failed = await firstFailedStart(db, { ...newer, deploymentId: newer.id, sinceMs, reasons: [...USER_CAUSES] });
    return {
      sinceMs,
      limitMs: startLimitMs ?? (await this.#startLimitMs(newer)),
      pulledAtMs: this.#pulledAtMs.get(newer.id) ?? sinceMs,
      newer: this.#versionOf(newer),
      failed: failed && {
        containerId: failed.id,
        reason: failed.reason ?? 'user_error',
        message: failed.message ?? '',
      },
      older: older === null ? null : this.#versionOf(older),
    };
  }

  #versionOf(row: Pick<DeploymentRow, 'id' | 'stubId' | 'version' | 'active'>): VersionFacts {
    let ready = 0;
    let live = 0;
    for (const { row: container } of this.#parts.containers.ofQueue(queueOf(row))) {
      if (container.state === 'RUNNING') ready += 1;
      if (isLiveContainer(container.state)) live += 1;
    }
    return { version: row.version, active: row.active, ready, live };
  }

  /** Time that a start of the version may take. */
  async #startLimitMs({ id }: Pick<DeploymentRow, 'id'>): Promise<number> {
    return startTimeoutMsOf((await this.#parts.targets.byDeployment(id))?.config);
  }

  #lastPullAtMs(row: Pick<DeploymentRow, 'id' | 'stubId'>): number {
    const { containers, clock } = this.#parts;
    const nowMs = clock.nowMs();
    const agoMs = clock.monotonicMs();
    const pulls = [...containers.ofQueue(queueOf(row))].flatMap(({ start }) => {
      if (start === undefined || start.text === '') return [];
      return [waitsForTurn(start.text) ? nowMs : nowMs - (agoMs - start.atMs)];
    });
    return Math.max(this.#pulledAtMs.get(row.id) ?? nowMs, ...pulls);
  }

  async #carryOut(row: DeploymentRow, decision: RolloutDecision): Promise<void> {
    if (decision.kind === 'wait') return;
    const { db, events, targets, clock, log, fence } = this.#parts;
    const leads = fence();
    if (leads === undefined) return;
    const state = decision.kind === 'move' ? 'done' : 'failed';
    const ended = await events.transaction(db, async (tx, emit) => {
      const written = await endRollout(tx, row.id, { state, why: decision.text, fence: leads });
      if (written !== undefined) emit(rolledOut(written, clock.nowMs()));
      return written;
    });
    if (ended === undefined) return;
    log.info(
      { deploymentId: row.id, version: row.version, state, why: decision.kind === 'move' ? decision.why : 'failed' },
      'rollout ended',
    );
    await targets.changed(row.id);
  }
}

const queueOf = ({ id, stubId }: Pick<DeploymentRow, 'id' | 'stubId'>): QueueName => queueNameOf(id, stubId);
