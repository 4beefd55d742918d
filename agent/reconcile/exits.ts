import { cutText } from '../slots/words.ts';
import type { Note } from './books.ts';
import { DISCONNECTED } from './disconnect.ts';

/** The container sent its agent what no runner sends (decision 0070). */
export const PROTOCOL_VIOLATION = 'protocol_violation';
/** The container wrote more to its disk than it may. */
export const DISK_LIMIT = 'disk_limit';

export interface ExitInput {
  readonly seen: { readonly exitCode: number; readonly oomKilled: boolean; readonly error: string };
  readonly ready: boolean;
  /** What the runner said before. */
  readonly note: Note | undefined;
  /** Why it was told to end, when it was. */
  readonly ending: string | undefined;
  readonly rebooted: boolean;
}

/** The reason a container ended: one of the words of the interface's exit reasons. Pure. */
export function exitReason(exit: ExitInput): string {
  if (exit.note !== undefined) return exit.note.reason;
  if (exit.ending !== undefined) return exit.ending;
  if (exit.rebooted) return 'host_reboot';
  // A child may be the one that took too much: then the code says nothing, the flag does.
  if (exit.seen.oomKilled) return 'oom';
  if (exit.seen.exitCode === 0) return 'completed';
  return exit.seen.exitCode === 137 ? 'killed' : 'user_error';
}

/** Why, in words; at most 16 KiB. Pure. */
export const exitMessage = (exit: ExitInput): string => cutText(messageOf(exit));

function messageOf(exit: ExitInput): string {
  if (exit.note !== undefined) return exit.note.message;
  if (exit.ending === 'start_timeout') return 'the container did not become ready in time';
  if (exit.ending === DISCONNECTED)
    return 'the scheduler did not answer its machine for so long that the container had to stop (stopAfterDisconnect)';
  if (exit.ending !== undefined || exit.rebooted) return '';
  if (exit.seen.oomKilled) return 'the container ran out of memory';
  if (exit.seen.error !== '') return exit.seen.error;
  if (exit.seen.exitCode === 0) return exit.ready ? '' : 'the container ended before it was ready';
  return `process exited (code ${exit.seen.exitCode})`;
}

/**
 * How the end of a container counts for its attempts. Ends by the container's own doing count as its exit, in the words of the reason: its tasks are not run again as if the machine had lost them. Pure.
 * @param reason - as the container's exit has it
 */
export function attemptsEnd(
  reason: string,
  message: string,
  exit: Pick<ExitInput, 'ending' | 'rebooted'>,
): { readonly kind: 'exited'; readonly text?: string } | { readonly kind: 'stopped' } {
  if (reason === PROTOCOL_VIOLATION || reason === DISK_LIMIT) return { kind: 'exited', text: message };
  return { kind: exit.ending === undefined && !exit.rebooted ? 'exited' : 'stopped' };
}
