import { expect, test } from 'vitest';
import type { QueueName } from '#shared/domain/ids.ts';
import { MOST_AT_REST, QueueHistories } from '#scheduler/control/autoscaler/history.ts';

const named = (index: number): QueueName => `tq-${index}` as QueueName;

test('however many queues have containers, a sweep over them forgets no window', () => {
  const histories = new QueueHistories();
  const count = 60_000;
  for (let sweep = 1; sweep <= 2; sweep += 1)
    for (let index = 0; index < count; index += 1) histories.of(named(index)).samples += 1;
  const samples = Array.from({ length: count }, (_none, index) => histories.peek(named(index))?.samples);
  expect(new Set(samples)).toEqual(new Set([2]));
});

test('of queues at rest the last ones are kept, and one that wants containers again goes on with its history', () => {
  const histories = new QueueHistories();
  for (let index = 0; index <= MOST_AT_REST; index += 1) {
    histories.of(named(index)).samples = index;
    histories.rest(named(index));
  }
  expect([histories.peek(named(0)), histories.peek(named(1))?.samples]).toEqual([undefined, 1]);
  expect(histories.of(named(1)).samples).toBe(1);
  for (let index = 0; index <= MOST_AT_REST; index += 1) if (index !== 1) histories.rest(named(index));
  expect(histories.peek(named(1))?.samples).toBe(1);
});
