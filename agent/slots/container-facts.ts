// Facts that the slots of a container are told, and events that they tell.
import type { Rule } from './budget.ts';
import type { OpenBytes } from './streams.ts';

/** How a container runs its handler. `reload`: a development server, whose processes follow each other. */
export const MODES = ['single', 'fork', 'thread', 'spawn', 'reload'] as const;

/** Retired processes of a development server at once: each ends its calls beside the process that serves. */
export const MOST_RETIRED = 8;

/** Slots that differ from those of a container whose processes all serve. */
export interface SlotChange {
  /** Slots of processes that have ended or are retired, and whose successors do not serve yet. */
  readonly restarting: number;
  /** Attempts of retired processes: they take no slot of the process that serves. */
  readonly retired: number;
}

export interface ReadyFacts {
  readonly mode: (typeof MODES)[number];
  readonly slots: number;
  readonly onStartMs: number;
}

export interface PrintedLine {
  readonly containerId: string;
  readonly taskId: string;
  readonly stream: 'stdout' | 'stderr';
  readonly line: string | undefined;
}

export interface ContainerSlotsEvents {
  onReady(containerId: string, ready: ReadyFacts): void;
  onStarting(containerId: string, phase: string): void;
  /** The handler's import or `on_start` raised; `message` is for people. */
  onFailed(containerId: string, message: string): void;
  /** @param record - `line`: undefined for a line above the rate, to be counted as dropped */
  onLog(record: PrintedLine): void;
  /** An attempt cannot be ended without ending its container. */
  onMustStop(containerId: string, reason: string): void;
  /** A process with attempts went away: the container has to be inspected now. */
  onSuspect(containerId: string): void;
  /**
   * The container sent messages that no runner sends: its socket is closed, and it has to end. `text` is for people.
   */
  onViolation(containerId: string, rule: Rule, text: string): void;
  onSlots(containerId: string, change: SlotChange): void;
}

export interface ContainerExit {
  readonly kind: 'exited' | 'stopped' | 'vanished';
  readonly exitCode: number;
  readonly oomKilled: boolean;
  /** The error text of its attempts; absent: the exit code as text. */
  readonly text?: string;
}

/** Where streamed calls go. */
export interface StreamWay {
  readonly open: OpenBytes;
  /** Called with 1 when a stream opens, with -1 when it is over. */
  readonly onCount: (by: number) => void;
}

export interface SlotFacts {
  readonly containerId: string;
  readonly workers: number;
  readonly concurrentRequests: number;
  readonly timeoutMs: number;
  readonly socketPath: string;
  /** Facts of an earlier agent process; undefined: the container was not ready. */
  readonly ready: ReadyFacts | undefined;
  /** The container is older than this agent process; absent: true if it was ready before. */
  readonly adopted?: boolean;
}
