import { cutText } from '../slots/failure-text.ts';
import type { Note } from './agent-state.ts';
import { DISCONNECTED } from './disconnect.ts';

/** The container sent its agent messages that no runner sends (decision 0070). */
export const PROTOCOL_VIOLATION = 'protocol_violation';
/** The container wrote more than its disk limit. */
export const DISK_LIMIT = 'disk_limit';

export interface ExitInput {
  readonly seen: { readonly exitCode: number; readonly oomKilled: boolean; readonly error: string };
  readonly ready: boolean;
  /** A pod or a sandbox: its program may end well without ever having been ready. */
  readonly isSupervised?: boolean;
  /** The failure that the runner reported before. */
  readonly note: Note | undefined;
  /** The reason of the order to end, if there was one. */
  readonly ending: string | undefined;
  readonly rebooted: boolean;
}

/** The reason of a container's end: one of the interface's exit reasons. Pure. */
export function exitReason(exit: ExitInput): string {
  if (exit.note !== undefined) return exit.note.reason;
  if (exit.ending !== undefined) return exit.ending;
  if (exit.rebooted) return 'host_reboot';
  // A child process may be the one that ran out of memory: then only the flag says so, not the exit code.
  if (exit.seen.oomKilled) return 'oom';
  if (exit.seen.exitCode === 0) return 'completed';
  return exit.seen.exitCode === 137 ? 'killed' : 'user_error';
}

/** The reason as a sentence; at most 16 KiB. Pure. */
export const exitMessage = (exit: ExitInput): string => cutText(messageOf(exit));

function messageOf(exit: ExitInput): string {
  if (exit.note !== undefined) return exit.note.message;
  if (exit.ending === 'start_timeout') return 'the container did not become ready in time';
  if (exit.ending === DISCONNECTED)
    return 'the scheduler did not answer its machine for so long that the container had to stop (stopAfterDisconnect)';
  if (exit.ending !== undefined || exit.rebooted) return '';
  if (exit.seen.oomKilled) return 'the container ran out of memory';
  if (exit.seen.error !== '') return exit.seen.error;
  if (exit.seen.exitCode === 0)
    return exit.ready || exit.isSupervised === true ? '' : 'the container ended before it was ready';
  return `process exited (code ${exit.seen.exitCode})`;
}

/**
 * How a container's end counts for its attempts. Ends by the container's own doing count as its exit, with that reason:
 * its tasks do not run again as if the machine had lost them. Pure.
 * @param reason - the reason in the container's exit
 */
export function attemptsEnd(
  reason: string,
  message: string,
  exit: Pick<ExitInput, 'ending' | 'rebooted'>,
): { readonly kind: 'exited'; readonly text?: string } | { readonly kind: 'stopped' } {
  if (reason === PROTOCOL_VIOLATION || reason === DISK_LIMIT) return { kind: 'exited', text: message };
  return { kind: exit.ending === undefined && !exit.rebooted ? 'exited' : 'stopped' };
}
