// Calls with an Idempotency-Key. The same key gives the same task, and a synchronous caller its answer, at
// any replica and while the task still runs. A key is claimed in the database before its task is accepted.
// The claim becomes the task's own in the commit of an asynchronous task, or after a synchronous one was let in.
// Invariants: a key whose task may have run is never given to another task. A refused
// call leaves no key. A claim whose process died is free again after CLAIM_MS, unless
// its task is found. Calls without a key do not come here. Source: decision 0088.
import type { TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import { sleep } from '#shared/backoff.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { KeyPlace, KeyRow } from '../../stores/store/queries/idempotency.ts';
import type { Completion } from '../completion/completion.ts';
import type { TaskRecords } from '../records/records.ts';
import type { IdempotencyKeys } from './idempotency-keys.ts';
import { MOST_KEYS, MOST_KEYS_OF_OTHERS } from './idempotency-keys.ts';
import type { Call, CallKey, Submission } from './calls.ts';

/**
 * Milliseconds after which a claim is old. Longer than any ordinary time
 * from a claim to its task: add and commit have deadlines of 10 s at most.
 */
const CLAIM_MS = 30_000;
/** Age up to which a task is queued under its claim; an older claim may soon be taken over. */
const FRESH_MS = 15_000;
/** Most changes of a key's task while one call looks at it. */
const MOST_TURNS = 10;
/**
 * Most calls here that wait for a task of another replica, or for a claim, in
 * all. A workspace may also have no more such calls than there is room left.
 */
const MOST_FOLLOWING = 1_000;
const MOST_FOLLOWING_OF_ONE = 250;
const FIRST_LOOK_MS = 25;
const SLOWEST_LOOK_MS = 500;

/** Key that is being given to a task. */
export interface KeyClaim extends KeyPlace {
  readonly taskId: TaskId;
  /** Whether the claim is young enough to queue a task under it. */
  isFresh(): boolean;
  /**
   * True when the call is refused although its task may be in the queue.
   * The code that takes the task out then releases the key, or accepts it.
   */
  isWithdrawn: boolean;
}

interface Flight {
  readonly fingerprint: string;
  readonly submission: Promise<Submission>;
  callers: number;
}

type Accept = (call: Call, claim: KeyClaim) => Promise<Submission>;

const REUSED: Submission = { kind: 'key_reused' };
const BUSY: Submission = { kind: 'unavailable', reason: 'key_in_doubt', retryAfterSeconds: 1 };

export interface IdempotencyParts {
  readonly keys: IdempotencyKeys;
  /** Which of these synchronous tasks some replica has; undefined: a present one did not answer. */
  readonly whoHas: (taskIds: readonly TaskId[]) => Promise<ReadonlySet<TaskId> | undefined>;
  readonly records: Pick<TaskRecords, 'read'>;
  readonly completion: Pick<Completion, 'finishedOf' | 'answerOf'>;
  readonly signal: AbortSignal;
}

export class Idempotency {
  readonly #parts: IdempotencyParts;
  readonly #keys: IdempotencyKeys;
  /** Keyed calls under way here: those with the same key share one flight. */
  readonly #flights = new Map<string, Flight>();
  /** Number of waiting calls by workspace; absent: none. */
  readonly #followingOf = new Map<WorkspaceId, number>();
  #following = 0;

  constructor(parts: IdempotencyParts) {
    this.#parts = parts;
    this.#keys = parts.keys;
  }

  /** Submits a call with a key. @param accept - makes a task of the call, under the claim's id */
  submit(target: Target, call: Call, key: CallKey, accept: Accept): Promise<Submission> {
    const name = JSON.stringify([target.workspaceId, groupOf(target, key), key.key, target.deploymentId]);
    const held = this.#flights.get(name);
    if (held !== undefined) {
      if (held.fingerprint !== key.fingerprint) return Promise.resolve(REUSED);
      held.callers += 1;
      return this.#shared(name, held, () => false, true);
    }
    let hasItems = false;
    const { onItem } = call;
    const watched: Call =
      onItem === undefined
        ? call
        : {
            ...call,
            onItem: (taskId, event) => {
              hasItems = true;
              onItem(taskId, event);
            },
          };
    const flight: Flight = {
      fingerprint: key.fingerprint,
      submission: this.#resolve(target, key, (claim) => accept(watched, claim)),
      callers: 1,
    };
    this.#flights.set(name, flight);
    return this.#shared(name, flight, () => hasItems, false);
  }

  /** Share of one caller in a flight: the task is left when its last caller leaves. */
  async #shared(name: string, flight: Flight, hasItems: () => boolean, joined: boolean): Promise<Submission> {
    const land = (): void => {
      if (this.#flights.get(name) === flight) this.#flights.delete(name);
    };
    let submission: Submission;
    try {
      submission = await flight.submission;
    } catch (error) {
      land();
      throw error;
    }
    if (submission.kind !== 'accepted') {
      land();
      return submission;
    }
    const { finished, callerLeft, isAsync } = submission;
    if (isAsync === true) land();
    else void finished.finally(land).catch(() => undefined);
    let hasLeft = false;
    return {
      ...submission,
      ...(joined ? { isReplay: true } : {}),
      callerLeft: () => {
        if (hasLeft) return;
        hasLeft = true;
        flight.callers -= 1;
        if (flight.callers > 0) return;
        land();
        // A generator whose items were received runs to its end: the same key gives all its items then.
        if (!hasItems()) callerLeft();
      },
    };
  }

  async #resolve(target: Target, key: CallKey, accept: (claim: KeyClaim) => Promise<Submission>): Promise<Submission> {
    for (let turns = 0; turns < MOST_TURNS; turns += 1) {
      const taskId = newId<TaskId>();
      const claimedMs = performance.now();
      const claimed = await this.#claim(target, key, taskId);
      if (claimed === 'full') return { kind: 'keys_exhausted', most: key.isOwn ? MOST_KEYS : MOST_KEYS_OF_OTHERS };
      if (!('fingerprint' in claimed)) return await this.#accept(claimed, taskId, claimedMs, target, accept);
      if (claimed.fingerprint !== key.fingerprint) return REUSED;
      const followed = await this.#follow(target, claimed);
      if (followed === 'gone') continue;
      if (followed !== 'free') return followed;
      const movedMs = performance.now();
      if (await this.#keys.move(claimed, { taskId, deploymentId: target.deploymentId }))
        return await this.#accept(claimed, taskId, movedMs, target, accept);
    }
    return BUSY;
  }

  /** Owner of the key: this call now, another task, or none because there is no room. */
  async #claim(target: Target, key: CallKey, taskId: TaskId): Promise<KeyPlace | KeyRow | 'full'> {
    const { workspaceId, deploymentId } = target;
    const group = groupOf(target, key);
    const own = key.asksNewest || deploymentId === null ? undefined : `${key.callerScope}version/${deploymentId}`;
    const scopes = own === undefined ? [group] : [own, group];
    for (let tries = 0; ; tries += 1) {
      const rows = await this.#keys.find(workspaceId, scopes, key.key);
      const ofGroup = rows.find(({ scope }) => scope === group);
      // The newest version may have changed since the first call: a retry still means the first call's task.
      const held =
        rows.find(({ scope }) => scope === own) ??
        (own === undefined || ofGroup?.deploymentId === deploymentId ? ofGroup : undefined);
      if (held !== undefined) return held;
      // The first insert keeps a margin to the bound, the second one has its turn and counts to the bound itself.
      if (tries > 1 && rows.length === 0) return 'full';
      const place = { workspaceId, scope: ofGroup === undefined ? group : (own ?? group), key: key.key };
      const { isOwn, fingerprint } = key;
      const row = { ...place, isOwn, fingerprint, taskId, deploymentId };
      if (await (tries === 0 ? this.#keys.insert(row) : this.#keys.insertInTurn(row))) return place;
      if (tries >= MOST_TURNS) return 'full';
    }
  }

  async #accept(
    { workspaceId, scope, key }: KeyPlace,
    taskId: TaskId,
    claimedMs: number,
    target: Target,
    accept: (claim: KeyClaim) => Promise<Submission>,
  ): Promise<Submission> {
    const isFresh = (): boolean => performance.now() - claimedMs < FRESH_MS;
    const claim: KeyClaim = { workspaceId, scope, key, taskId, isFresh, isWithdrawn: false };
    let isAccepted = false;
    try {
      const submission = await accept(claim);
      isAccepted = submission.kind === 'accepted';
      if (isAccepted && target.sync) this.#keys.acceptSoon(claim);
      return submission;
    } finally {
      if (!isAccepted && !claim.isWithdrawn) await this.#keys.release(claim);
    }
  }

  /**
   * Waits for the outcome of the key's task. `free`: its task never ran,
   * nor will; `gone`: the key was released, or is another task's now
   */
  async #follow(target: Target, row: KeyRow): Promise<Submission | 'free' | 'gone'> {
    if (!target.sync && row.isAccepted) return accepted(row.taskId, true);
    const { workspaceId } = target;
    const ofOne = this.#followingOf.get(workspaceId) ?? 0;
    if (ofOne >= Math.min(MOST_FOLLOWING_OF_ONE, MOST_FOLLOWING - this.#following)) return BUSY;
    this.#following += 1;
    this.#followingOf.set(workspaceId, ofOne + 1);
    try {
      return await (target.sync ? this.#followSync(row) : this.#followAsync(row));
    } finally {
      this.#following -= 1;
      const left = (this.#followingOf.get(workspaceId) ?? 1) - 1;
      if (left > 0) this.#followingOf.set(workspaceId, left);
      else this.#followingOf.delete(workspaceId);
    }
  }

  /** Waits for an asynchronous task whose commit is under way, or never came: its key was not accepted with it. */
  async #followAsync(claimed: KeyRow): Promise<Submission | 'free' | 'gone'> {
    for (let waitMs = FIRST_LOOK_MS; await sleep(waitMs, this.#parts.signal); waitMs = longer(waitMs)) {
      const row = await this.#again(claimed);
      if (row === undefined) return 'gone';
      if (row.isAccepted) return accepted(row.taskId, true);
      if (row.ageMs >= CLAIM_MS) return 'free';
    }
    return BUSY;
  }

  async #followSync(claimed: KeyRow): Promise<Submission | 'free' | 'gone'> {
    const { records, completion, signal } = this.#parts;
    let row = claimed;
    for (let waitMs = FIRST_LOOK_MS; ; waitMs = longer(waitMs)) {
      const known = await records.read(row.taskId);
      if (known !== undefined && isTerminalTask(known.status)) {
        // No container had the task, so nothing can happen twice.
        if (known.attempt === 0 && known.status !== 'COMPLETE') return 'free';
        const finished = Promise.resolve(await completion.finishedOf(known));
        return { ...accepted(row.taskId, false), finished };
      }
      if (known === undefined && row.ageMs >= CLAIM_MS && (await this.#isGone(row.taskId))) {
        if (!row.isAccepted) return 'free';
        const lost = completion.answerOf({ status: 'ERROR', reason: 'answer_lost' });
        return { ...accepted(row.taskId, false), finished: Promise.resolve(lost) };
      }
      if (!(await sleep(waitMs, signal))) return BUSY;
      if (known !== undefined) continue;
      const now = await this.#again(row);
      if (now === undefined) return 'gone';
      row = now;
    }
  }

  async #again(held: KeyRow): Promise<KeyRow | undefined> {
    const [row] = await this.#keys.find(held.workspaceId, [held.scope], held.key);
    return row?.taskId === held.taskId ? row : undefined;
  }

  /** Whether a synchronous task is in no replica's memory, and has no row. */
  async #isGone(taskId: TaskId): Promise<boolean> {
    const { whoHas, records } = this.#parts;
    const had = await whoHas([taskId]);
    // The task may have ended in between, or a replica does not answer.
    return had !== undefined && !had.has(taskId) && (await records.read(taskId)) === undefined;
  }
}

const NEVER = new Promise<never>(() => undefined);

const accepted = (taskId: TaskId, isAsync: boolean) => ({
  kind: 'accepted' as const,
  taskId,
  finished: NEVER,
  callerLeft: () => undefined,
  isReplay: true,
  ...(isAsync ? { isAsync } : {}),
});

const longer = (waitMs: number): number => Math.min(waitMs * 2, SLOWEST_LOOK_MS);

/** Scope of a key: all versions of a deployment; a stub without one stands alone. */
const groupOf = ({ kind, deploymentId, deploymentName, stubId }: Target, { callerScope }: CallKey): string =>
  deploymentId === null ? `${callerScope}stub/${stubId}` : `${callerScope}${kind}/${deploymentName}`;
