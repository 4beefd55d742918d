import { CONTAINER_OOM_TEXT } from '#shared/domain/task-failures.ts';
import type { EndMemory } from '../containers/runtime.ts';
import { cutText } from '../slots/failure-text.ts';
import type { Note } from './agent-state.ts';
import { DISCONNECTED } from './disconnect.ts';

/** The container sent its agent messages that no runner sends (decision 0070). */
export const PROTOCOL_VIOLATION = 'protocol_violation';
/** The container wrote more than its disk limit. */
export const DISK_LIMIT = 'disk_limit';

/** The container engine stopped or began anew, and ended the container. */
export const ENGINE_RESTARTED = 'engine_restarted';
/** Exit codes of a program that SIGKILL or SIGTERM ended. */
export const BY_SIGNAL: ReadonlySet<number> = new Set([137, 143]);

/** Whose doing an end was that nobody ordered here: of the engine, or of somebody who told the engine. */
export type OutsideEnd = typeof ENGINE_RESTARTED | 'killed';

export interface OutsideFacts {
  /** undefined: the engine does not answer. */
  readonly memory: EndMemory | undefined;
  /** The engine's events had named a signal before the end. */
  readonly signalled: boolean;
  /** Containers outlive an engine with this setting. */
  readonly liveRestore: boolean;
  readonly exitCode: number;
}

/** Whether an end came from outside the container; undefined: it was the container's own. Pure. */
export function outsideEnd({ memory, signalled, liveRestore, exitCode }: OutsideFacts): OutsideEnd | undefined {
  switch (memory) {
    case undefined:
      // An engine that stops ends its containers by signals, and takes no new connection meanwhile.
      return signalled ? ENGINE_RESTARTED : undefined;
    case 'signalled':
      return 'killed';
    case 'new_engine':
      // A container that lived on without an engine may end by its own fault meanwhile.
      return liveRestore && !BY_SIGNAL.has(exitCode) ? undefined : ENGINE_RESTARTED;
    case 'own':
      return undefined;
  }
}

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
  /** The end came from outside, although nobody here ordered it. */
  readonly outside?: OutsideEnd | undefined;
}

/** The reason of a container's end: one of the interface's exit reasons. Pure. */
export function exitReason(exit: ExitInput): string {
  if (exit.note !== undefined) return exit.note.reason;
  // The engine may end a container's network before it ends the container, which this agent then orders.
  if (exit.ending === 'lost' && exit.outside === ENGINE_RESTARTED) return ENGINE_RESTARTED;
  if (exit.ending !== undefined) return exit.ending;
  if (exit.rebooted) return 'host_reboot';
  // A child process may be the one that ran out of memory: then only the flag says so, not the exit code.
  if (exit.seen.oomKilled) return 'oom';
  // The exit code says nothing: a program may answer SIGTERM with any, also with 0.
  if (exit.outside !== undefined) return exit.outside;
  if (exit.seen.exitCode === 0) return 'completed';
  return exit.seen.exitCode === 137 ? 'killed' : 'user_error';
}

/** The reason as a sentence; at most 16 KiB. Pure. */
export const exitMessage = (exit: ExitInput): string => cutText(messageOf(exit));

function messageOf(exit: ExitInput): string {
  if (exit.note !== undefined) return exit.note.message;
  if (exitReason(exit) === ENGINE_RESTARTED)
    return 'the container engine of the machine was stopped or started again, and ended the container';
  if (exit.ending === 'start_timeout')
    return 'the container was not ready within the time of its start (`start_timeout`)';
  if (exit.ending === DISCONNECTED)
    return 'the scheduler did not answer its machine for so long that the container had to stop (stopAfterDisconnect)';
  if (exit.ending !== undefined || exit.rebooted) return '';
  if (exit.seen.oomKilled) return CONTAINER_OOM_TEXT;
  if (exit.outside === 'killed') return 'somebody ended the container through the container engine of its machine';
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
  exit: Pick<ExitInput, 'ending' | 'rebooted' | 'outside'>,
): { readonly kind: 'exited'; readonly text?: string } | { readonly kind: 'stopped' } {
  if (reason === PROTOCOL_VIOLATION || reason === DISK_LIMIT) return { kind: 'exited', text: message };
  const isOwn = exit.ending === undefined && !exit.rebooted && (exit.outside === undefined || reason !== exit.outside);
  return { kind: isOwn ? 'exited' : 'stopped' };
}
