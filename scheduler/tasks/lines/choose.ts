// Who gets a slot that frees, and to which replica a synchronous task goes that waits.
import type { InstanceId, TaskId } from '#shared/domain/ids.ts';

/** A task gets a slot before older ones of other replicas, unless they are older by more than this. */
const OLDER_BY_MS = 10;

/** Age of the oldest task that waits in a line. */
export interface Head {
  readonly replica: InstanceId;
  readonly ageMs: number;
}

/**
 * Who gets a slot that frees: the own line, or another replica whose oldest task is older.
 * @param own - age of the oldest own task; undefined: none waits here
 */
export function chooseNext(
  own: number | undefined,
  others: Iterable<Head>,
): { readonly kind: 'own' | 'nobody' } | { readonly kind: 'room'; readonly replica: InstanceId } {
  let oldest: Head | undefined;
  for (const head of others) if (head.ageMs > (oldest?.ageMs ?? -1)) oldest = head;
  if (oldest !== undefined && (own === undefined || oldest.ageMs > own + OLDER_BY_MS))
    return { kind: 'room', replica: oldest.replica };
  return { kind: own === undefined ? 'nobody' : 'own' };
}

/**
 * Replicas to which waiting tasks are offered, the oldest first.
 * @param free - slots that other replicas seem to have free, less the offers under way
 */
export function chooseOffers(
  waiting: Iterable<TaskId>,
  free: Iterable<readonly [InstanceId, number]>,
): readonly { readonly taskId: TaskId; readonly to: InstanceId }[] {
  const left = new Map([...free].filter(([, slots]) => slots > 0));
  const offers: { readonly taskId: TaskId; readonly to: InstanceId }[] = [];
  for (const taskId of waiting) {
    let to: InstanceId | undefined;
    for (const [replica, slots] of left) if (to === undefined || slots > (left.get(to) ?? 0)) to = replica;
    if (to === undefined) break;
    offers.push({ taskId, to });
    const slots = (left.get(to) ?? 1) - 1;
    if (slots > 0) left.set(to, slots);
    else left.delete(to);
  }
  return offers;
}
