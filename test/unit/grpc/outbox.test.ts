import { expect, test } from 'vitest';
import { Outbox } from '../../../scheduler/api/grpc/operations/outbox.ts';

const never = new AbortController().signal;

test('messages come in order, and their source waits while too many do', async () => {
  const box = new Outbox<number>(2);
  expect(box.put(1)).toBeUndefined();
  const full = box.put(2);
  expect(full).toBeInstanceOf(Promise);
  expect(await box.next(never)).toBe(1);
  await full;
  expect(await box.next(never)).toBe(2);
  const next = box.next(never);
  void box.put(3);
  expect(await next).toBe(3);
});

test('a failure comes behind the messages before it', async () => {
  const box = new Outbox<number>();
  void box.put(1);
  box.fail(new Error('gone'));
  expect(await box.next(never)).toBe(1);
  await expect(box.next(never)).rejects.toThrow('gone');
});

test('nothing comes any more once the signal says so', async () => {
  const box = new Outbox<number>();
  const over = new AbortController();
  const next = box.next(over.signal);
  over.abort();
  expect(await next).toBeUndefined();
});
