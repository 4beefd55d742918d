// The conditions that the events of tasks must meet after the kill rounds. In: what history has, what a subscriber got
// and what a receiver of a webhook got, all there since before the first task. Out: every contradiction between them,
// and between them and the tasks. Pure.
import { isFinal } from '../soak/tasks.ts';

/** An event as history has it. */
export interface ToldEvent {
  readonly seq: number;
  /** Id of the CloudEvent, never given twice. */
  readonly id: string;
  readonly type: string;
  readonly taskId: string;
  readonly status: string;
  /** Number of the attempt; 0 before the first. */
  readonly attempt: number;
}

export interface EventBooks {
  /** Oldest first. */
  readonly history: readonly ToldEvent[];
  /** Numbers that the subscriber got, in the order of arrival. */
  readonly streamed: readonly number[];
  /** Ids that the receiver got, in the order of arrival. A kill may have the same one sent again. */
  readonly delivered: readonly string[];
  /** Status of each accepted task by its record. */
  readonly statuses: ReadonlyMap<string, string>;
}

/**
 * Statuses that may follow one another (`TASK_TRANSITIONS` in scheduler/tasks/state.ts); a late COMPLETE may replace
 * another end.
 */
const NEXT: Readonly<Record<string, readonly string[]>> = {
  // PENDING: the attempt ended before it began, and a kill took the record of its hand-over.
  PENDING: ['PENDING', 'RUNNING', 'RETRY', 'COMPLETE', 'ERROR', 'CANCELLED', 'EXPIRED', 'TIMEOUT'],
  // PENDING: the attempt ended before it began.
  RUNNING: ['PENDING', 'RETRY', 'COMPLETE', 'ERROR', 'CANCELLED', 'TIMEOUT'],
  RETRY: ['PENDING', 'RUNNING', 'COMPLETE', 'ERROR', 'CANCELLED', 'EXPIRED', 'TIMEOUT'],
};
const NEXT_OF_END = ['COMPLETE'];
const MOST_WRITTEN_OUT = 20;

export function auditEvents(books: EventBooks): readonly string[] {
  return [
    ...bounded('wrong_story', storiesOf(books)),
    ...bounded('stream_wrong', streamFindings(books)),
    ...bounded('webhook_wrong', deliveryFindings(books)),
  ];
}

function storiesOf({ history, statuses }: EventBooks): readonly string[] {
  const byTask = Map.groupBy(history, ({ taskId }) => taskId);
  const found: string[] = [];
  for (const [taskId, status] of statuses) {
    const events = byTask.get(taskId) ?? [];
    const last = events.at(-1);
    const story = events.map((event) => event.status).join(' ');
    if (last === undefined) found.push(`${taskId} is ${status}, and has no event`);
    else if (last.status !== status) found.push(`${taskId} is ${status}, and its events say ${story}`);
  }
  for (const [taskId, events] of byTask) {
    const wrong = events.some((event, at) => {
      const before = events[at - 1];
      if (before === undefined) return event.type !== 'task.created' || event.status !== 'PENDING';
      return event.type !== 'task.updated' || !mayFollow(before, event) || event.seq <= before.seq;
    });
    if (wrong) found.push(`${taskId}: ${events.map(textOf).join(', ')}`);
  }
  const ids = new Set(history.map(({ id }) => id));
  if (ids.size < history.length) found.push(`${history.length - ids.size} ids of events were given twice`);
  return found;
}

const textOf = ({ seq, type, status, attempt }: ToldEvent): string => `${seq} ${type} ${status} ${attempt}`;

function mayFollow(before: ToldEvent, { status, attempt }: ToldEvent): boolean {
  const allowed = isFinal(before.status) ? NEXT_OF_END : (NEXT[before.status] ?? []);
  // PENDING again without an attempt in between would be no change.
  return allowed.includes(status) && attempt >= before.attempt + (status === before.status ? 1 : 0);
}

function streamFindings({ history, streamed }: EventBooks): readonly string[] {
  const found: string[] = [];
  for (const [at, seq] of streamed.entries()) {
    const before = streamed[at - 1];
    if (before !== undefined && seq <= before) found.push(`${seq} came behind ${before}`);
  }
  const got = new Set(streamed);
  const told = new Map(history.map((event) => [event.seq, event]));
  for (const { seq, taskId, status } of history)
    if (!got.has(seq)) found.push(`${seq} never came (${taskId} ${status})`);
  for (const seq of got) if (!told.has(seq)) found.push(`${seq} came, and history does not have it`);
  return found;
}

function deliveryFindings({ history, delivered }: EventBooks): readonly string[] {
  const found: string[] = [];
  const told = new Map(history.map((event) => [event.id, event]));
  const got = new Set(delivered);
  for (const { id, seq, taskId, status } of history)
    if (!got.has(id)) found.push(`${seq} was never delivered (${taskId} ${status})`);
  const lastOf = new Map<string, number>();
  // Sets keep the order in which each was first added.
  for (const id of got) {
    const event = told.get(id);
    if (event === undefined) {
      found.push(`${id} was delivered, and history does not have it`);
      continue;
    }
    const before = lastOf.get(event.taskId);
    if (before !== undefined && event.seq < before) found.push(`${event.taskId}: ${event.seq} came behind ${before}`);
    lastOf.set(event.taskId, event.seq);
  }
  return found;
}

const bounded = (fault: string, texts: readonly string[]): readonly string[] => [
  ...texts.slice(0, MOST_WRITTEN_OUT).map((text) => `${fault}: ${text}`),
  ...(texts.length > MOST_WRITTEN_OUT ? [`${fault}: and ${texts.length - MOST_WRITTEN_OUT} more`] : []),
];
