// The audit of events finds each planted fault, and is silent where history, subscriber, receiver and records agree.
import { expect, test } from 'vitest';
import { auditEvents } from '../../../bench/chaos/event-audit.ts';
import type { EventBooks, ToldEvent } from '../../../bench/chaos/event-audit.ts';

/** @param steps - statuses, each with the number of its attempt where that is another than the one before */
const story = (taskId: string, fromSeq: number, ...steps: readonly string[]): readonly ToldEvent[] => {
  let attempt = 0;
  return steps.map((step, at) => {
    const [status = '', number] = step.split(' ');
    attempt = number === undefined ? attempt : Number(number);
    return {
      seq: fromSeq + at,
      id: `event-${fromSeq + at}`,
      type: at === 0 ? 'task.created' : 'task.updated',
      taskId,
      status,
      attempt,
    };
  });
};

const HISTORY = [
  ...story('quick', 1, 'PENDING', 'RUNNING 1', 'COMPLETE'),
  ...story('tried twice', 7, 'PENDING', 'RUNNING 1', 'RETRY', 'RUNNING 2', 'ERROR', 'COMPLETE'),
  ...story('given back', 30, 'PENDING', 'RUNNING 1', 'PENDING', 'RUNNING 2', 'COMPLETE'),
  ...story('given back, its hand-over not recorded', 40, 'PENDING', 'PENDING 1', 'PENDING 2', 'CANCELLED'),
];

function booksOf(history: readonly ToldEvent[]): EventBooks {
  return {
    history,
    streamed: history.map(({ seq }) => seq),
    delivered: history.map(({ id }) => id),
    statuses: new Map(history.map(({ taskId, status }) => [taskId, status])),
  };
}

test('is silent where everybody got the same, gaps in the numbers and second deliveries included', () => {
  const books = booksOf(HISTORY);
  expect(auditEvents(books)).toEqual([]);
  expect(auditEvents({ ...books, delivered: [...books.delivered, 'event-2'] })).toEqual([]);
});

const without = <T>(list: readonly T[], one: T): readonly T[] => list.filter((other) => other !== one);
const whole = booksOf(HISTORY);

const PLANTED: readonly (readonly [what: string, books: EventBooks, found: RegExp])[] = [
  ['a task without events', { ...whole, statuses: new Map([['silent', 'COMPLETE']]) }, /^wrong_story: silent/],
  ['an end that no event tells', { ...whole, statuses: new Map([['quick', 'ERROR']]) }, /^wrong_story: quick is ERROR/],
  ['a beginning that is missing', booksOf(HISTORY.slice(1)), /^wrong_story: quick/],
  ['a status that may not follow', booksOf(story('odd', 1, 'PENDING', 'COMPLETE', 'RUNNING')), /^wrong_story: odd/],
  ['a status that is told again', booksOf(story('odd', 1, 'PENDING', 'PENDING', 'CANCELLED')), /^wrong_story: odd/],
  ['an earlier attempt', booksOf(story('odd', 1, 'PENDING', 'RUNNING 2', 'PENDING 1')), /^wrong_story: odd/],
  ['an id given twice', booksOf([...HISTORY, { ...story('third', 60, 'PENDING')[0]!, id: 'event-1' }]), /given twice/],
  ['an event that never streamed', { ...whole, streamed: without(whole.streamed, 2) }, /^stream_wrong: 2 never came/],
  ['an event that streamed twice', { ...whole, streamed: [...whole.streamed, 2] }, /^stream_wrong: 2 came behind 43/],
  ['a stream out of order', { ...whole, streamed: [2, 1, ...whole.streamed.slice(2)] }, /^stream_wrong: 1 came behind/],
  ['an event that nobody has', { ...whole, streamed: [...whole.streamed, 99] }, /^stream_wrong: 99 came, and history/],
  [
    'an event that was not delivered',
    { ...whole, delivered: without(whole.delivered, 'event-3') },
    /^webhook_wrong: 3 was never/,
  ],
  [
    'deliveries of one task out of order',
    { ...whole, delivered: ['event-3', ...without(whole.delivered, 'event-3')] },
    /^webhook_wrong: quick: 1 came behind 3/,
  ],
  [
    'a delivery that nobody has',
    { ...whole, delivered: [...whole.delivered, 'event-99'] },
    /^webhook_wrong: event-99 was/,
  ],
];

test.each(PLANTED)('finds %s', (_what, books, found) => {
  expect(auditEvents(books)).toEqual([expect.stringMatching(found)]);
});
