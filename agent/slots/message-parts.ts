/**
 * Splits messages to the scheduler into accepted sizes: lists in parts, texts cut to the remaining room. Called by the
 * link. Pure.
 */
import type { LiveAttempt, ObservedContainer } from '#shared/protocol/generated/messages.ts';
import { MAX_MESSAGE_BYTES, PART_BYTES } from '#shared/protocol/link.ts';
import { cutText } from './failure-text.ts';

/** Room for observed containers in a hello, beside its inventory: devices, and at most 200 references of images. */
const OBSERVED_BYTES = MAX_MESSAGE_BYTES - 256 * 1024;
/** Bytes for the numbers of an entry, and the tags and lengths of its fields. */
const OBSERVED_COST_BYTES = 192;
const ATTEMPT_COST_BYTES = 16;

const sum = (numbers: readonly number[]): number => numbers.reduce((total, number) => total + number, 0);

/** Bytes of an entry without its text. */
const costOf = ({
  containerId = '',
  assignmentId = '',
  phase = '',
  mode = '',
  reason = '',
  gpuUuids = [],
}: ObservedContainer): number =>
  OBSERVED_COST_BYTES +
  sum([containerId, assignmentId, phase, mode, reason, ...gpuUuids].map((text) => Buffer.byteLength(text) + 4));

export const attemptCost = ({ taskId = '', token = '', containerId = '', facts }: LiveAttempt): number =>
  ATTEMPT_COST_BYTES + taskId.length + token.length + containerId.length + (facts?.length ?? 0);

/**
 * Fits all containers into one message, because a container that it does not name counts as gone. Texts that exceed the
 * room get an equal share each.
 */
export function fitted(all: readonly ObservedContainer[], mostBytes = OBSERVED_BYTES): ObservedContainer[] {
  const room = Math.max(0, mostBytes - sum(all.map(costOf)));
  const sizes = all.map(({ message = '' }) => Buffer.byteLength(message));
  if (sum(sizes) <= room) return [...all];
  const share = shareOf(sizes, room);
  return all.map((one) => ({ ...one, message: cutText(one.message ?? '', share) }));
}

/** The largest size such that all fit when each is cut to it. */
function shareOf(sizes: readonly number[], room: number): number {
  let left = room;
  const ascending = sizes.toSorted((a, b) => a - b);
  for (const [index, size] of ascending.entries()) {
    const share = Math.floor(left / (ascending.length - index));
    if (size > share) return share;
    left -= size;
  }
  return Infinity;
}

/** Changes in parts that may be sent one after another. */
export const observedParts = (all: readonly ObservedContainer[]): ObservedContainer[][] =>
  inParts(all, (one) => costOf(one) + Buffer.byteLength(one.message ?? ''));

export const attemptParts = (all: readonly LiveAttempt[]): LiveAttempt[][] => inParts(all, attemptCost);

/** @returns at least one part */
export function inParts<T>(all: readonly T[], cost: (one: T) => number, mostBytes = PART_BYTES): T[][] {
  let part: T[] = [];
  let bytes = 0;
  const parts = [part];
  for (const one of all) {
    const more = cost(one);
    if (part.length > 0 && bytes + more > mostBytes) {
      parts.push((part = []));
      bytes = 0;
    }
    part.push(one);
    bytes += more;
  }
  return parts;
}
