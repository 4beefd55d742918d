/**
 * Decides the next actions from plain data: the desired state, the journal, and the engine's containers. Pure; runs
 * again after every change, so nothing is remembered between rounds. Must stay true: only containers with our machine's
 * label come in here; removals come before additions; an older epoch changes nothing. Without a snapshot nothing is
 * stopped. A container with work in progress is left alone (but may be interrupted).
 * Source: ARCHITECTURE, "What must stay true".
 */

export const DEFAULT_GRACE_MS = 30_000;

export interface Wanted {
  readonly containerId: string;
  readonly assignmentId: string;
  readonly epoch: number;
  readonly stop: boolean;
  readonly graceMs: number;
  readonly stopReason: string;
}

export interface Known {
  readonly containerId: string;
  readonly assignmentId: string;
  readonly epoch: number;
  readonly stage: 'accepted' | 'creating' | 'created' | 'gone';
}

export interface Seen {
  readonly dockerId: string;
  readonly containerId: string;
  readonly assignmentId: string;
  readonly epoch: number;
  readonly state: 'created' | 'running' | 'exited';
  /** Since when the container is unknown to the journal; epoch milliseconds. */
  readonly orphanSinceMs: number;
}

export type Work = 'start' | 'stop' | 'other';

export interface PlanInput {
  /** Undefined: no snapshot came in this session, so an absence proves nothing. */
  readonly wanted: ReadonlyMap<string, Wanted> | undefined;
  readonly known: ReadonlyMap<string, Known>;
  /**
   * Ends by the agent's own decision, independent of the scheduler: a start that took too long, a task that cannot be
   * ended otherwise.
   */
  readonly ending: ReadonlyMap<string, { readonly graceMs: number; readonly reason: string }>;
  readonly seen: readonly Seen[];
  /** Containers whose socket is listened on. */
  readonly attended: ReadonlySet<string>;
  /** Assignments acknowledged in this session, and those the scheduler let proceed. */
  readonly acked: ReadonlySet<string>;
  readonly proceeded: Pick<ReadonlySet<string>, 'has'>;
  /** Assignments refused in this session. */
  readonly refused: ReadonlySet<string>;
  readonly busy: ReadonlyMap<string, Work>;
  /** A container of ours that is neither desired nor in the journal is left alone for this long. */
  readonly orphanGraceMs: number;
}

interface Target {
  readonly containerId: string;
  readonly assignmentId: string;
  readonly epoch: number;
}

export type Action =
  /** Give up a start in progress. */
  | { readonly kind: 'interrupt'; readonly containerId: string }
  /** The stop ladder on a running container. */
  | ({ readonly kind: 'stop'; readonly dockerId: string; readonly graceMs: number; readonly reason: string } & Target)
  /** The container has exited: record and report the exit, remove everything of it. */
  | ({ readonly kind: 'finish'; readonly dockerId: string } & Target)
  /** The engine lost the container: report that. */
  | ({ readonly kind: 'vanished' } & Target)
  /** The assignment was taken, but nothing was created, and it is not desired any more. */
  | ({ readonly kind: 'release'; readonly reason: string } & Target)
  /** The container is gone, and the scheduler does not name it any more. */
  | ({ readonly kind: 'forget' } & Target)
  /** The container has to stop, and there is no trace of it: report it gone. */
  | ({ readonly kind: 'confirm-gone'; readonly reason: string } & Target)
  /** A container of ours without an entry in the journal. */
  | {
      readonly kind: 'remove-stray';
      readonly containerId: string;
      readonly dockerId: string;
      readonly why: 'older_epoch' | 'never_started' | 'orphan';
    }
  /** The container runs; listen to it (again). */
  | ({ readonly kind: 'adopt'; readonly dockerId: string } & Target)
  /** Validate, journal, acknowledge; prepare. */
  | ({ readonly kind: 'accept' } & Target)
  /** Create and start. */
  | ({ readonly kind: 'start' } & Target);

const REMOVAL_ORDER: Readonly<Record<Action['kind'], number>> = {
  interrupt: 0,
  stop: 1,
  finish: 1,
  vanished: 1,
  release: 1,
  forget: 1,
  'confirm-gone': 1,
  'remove-stray': 1,
  adopt: 2,
  accept: 3,
  start: 4,
};

/** Decides one round, removals first; at most one action a container. */
export function plan(input: PlanInput, nowMs: number): Action[] {
  const actions: Action[] = [];
  const seenOf = new Map<string, Seen[]>();
  for (const seen of input.seen) {
    const list = seenOf.get(seen.containerId);
    if (list === undefined) seenOf.set(seen.containerId, [seen]);
    else list.push(seen);
  }
  const ids = new Set([...(input.wanted?.keys() ?? []), ...input.known.keys(), ...seenOf.keys()]);
  for (const id of ids) {
    const action = planOne(
      input,
      input.wanted?.get(id),
      input.known.get(id),
      seenOf.get(id) ?? [],
      input.busy.get(id),
      nowMs,
    );
    if (action !== undefined) actions.push(action);
  }
  return actions.toSorted((a, b) => REMOVAL_ORDER[a.kind] - REMOVAL_ORDER[b.kind]);
}

function planOne(
  input: PlanInput,
  named: Wanted | undefined,
  known: Known | undefined,
  all: readonly Seen[],
  busy: Work | undefined,
  nowMs: number,
): Action | undefined {
  // An older epoch than the one in the journal is outdated: it neither starts nor stops anything.
  const wanted = named !== undefined && known !== undefined && named.epoch < known.epoch ? undefined : named;
  const echo = named !== undefined && wanted === undefined;
  const sameEpoch = wanted !== undefined && known !== undefined && wanted.epoch === known.epoch;
  const ending = known === undefined ? undefined : input.ending.get(known.containerId);
  const unwanted =
    ending !== undefined || (input.wanted !== undefined && known !== undefined && !echo && (!sameEpoch || wanted.stop));
  if (busy !== undefined)
    return busy === 'start' && unwanted && known !== undefined
      ? { kind: 'interrupt', containerId: known.containerId }
      : undefined;

  if (known === undefined) return planUnknown(input, wanted, all, nowMs);

  const target = { containerId: known.containerId, assignmentId: known.assignmentId, epoch: known.epoch };
  const seen = all.find((one) => one.epoch === known.epoch);
  const stray = all.find((one) => one.epoch !== known.epoch);
  if (stray !== undefined)
    return { kind: 'remove-stray', containerId: stray.containerId, dockerId: stray.dockerId, why: 'older_epoch' };

  if (known.stage === 'gone') {
    // `gone` was written after the removal; a container that is still seen is a leftover of a crash in between.
    if (seen !== undefined)
      return { kind: 'remove-stray', containerId: seen.containerId, dockerId: seen.dockerId, why: 'orphan' };
    return input.wanted !== undefined && !echo && !sameEpoch ? { kind: 'forget', ...target } : undefined;
  }
  if (seen === undefined) {
    if (known.stage === 'created') return { kind: 'vanished', ...target };
    if (unwanted) return { kind: 'release', reason: ending?.reason ?? (sameEpoch ? wanted.stopReason : ''), ...target };
    if (!sameEpoch) return undefined;
    if (!input.acked.has(known.assignmentId)) return { kind: 'accept', ...target };
    return input.proceeded.has(known.assignmentId) ? { kind: 'start', ...target } : undefined;
  }
  switch (seen.state) {
    case 'created':
      // Without work in progress, a crash has cut its start off: the container is created anew, if it is still desired.
      return { kind: 'remove-stray', containerId: seen.containerId, dockerId: seen.dockerId, why: 'never_started' };
    case 'exited':
      return { kind: 'finish', dockerId: seen.dockerId, ...target };
    case 'running':
      if (unwanted) {
        const asked = sameEpoch && wanted.graceMs > 0 ? wanted.graceMs : DEFAULT_GRACE_MS;
        const reason = ending?.reason ?? (sameEpoch ? wanted.stopReason : '');
        return { kind: 'stop', dockerId: seen.dockerId, graceMs: ending?.graceMs ?? asked, reason, ...target };
      }
      return input.attended.has(known.containerId) ? undefined : { kind: 'adopt', dockerId: seen.dockerId, ...target };
  }
}

/** Plans for a container without an entry: a new assignment, or a container of ours that the journal has lost. */
function planUnknown(
  input: PlanInput,
  wanted: Wanted | undefined,
  all: readonly Seen[],
  nowMs: number,
): Action | undefined {
  const mine = wanted === undefined ? undefined : all.find((one) => one.epoch === wanted.epoch);
  if (wanted !== undefined && mine?.state === 'running')
    return {
      kind: 'adopt',
      dockerId: mine.dockerId,
      containerId: wanted.containerId,
      assignmentId: wanted.assignmentId,
      epoch: wanted.epoch,
    };
  for (const stray of all) {
    const older = wanted !== undefined && stray.epoch !== wanted.epoch;
    const dead = wanted !== undefined && stray.state !== 'running';
    if (older || dead)
      return {
        kind: 'remove-stray',
        containerId: stray.containerId,
        dockerId: stray.dockerId,
        why: older ? 'older_epoch' : 'never_started',
      };
    if (input.wanted !== undefined && nowMs - stray.orphanSinceMs >= input.orphanGraceMs)
      return { kind: 'remove-stray', containerId: stray.containerId, dockerId: stray.dockerId, why: 'orphan' };
  }
  if (wanted === undefined || all.length > 0) return undefined;
  const target = { containerId: wanted.containerId, assignmentId: wanted.assignmentId, epoch: wanted.epoch };
  if (wanted.stop) return { kind: 'confirm-gone', reason: wanted.stopReason, ...target };
  return input.refused.has(wanted.assignmentId) ? undefined : { kind: 'accept', ...target };
}
