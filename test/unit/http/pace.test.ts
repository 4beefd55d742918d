import { expect, test } from 'vitest';
import { paced } from '../../../scheduler/api/http/pace.ts';

const RULES = { windowMs: 40, bytesPerWindow: 10 };
const after = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** Sends so many bytes each time, after that wait; at the end it waits for ever or ends. */
async function* sender(times: number, bytes: number, waitMs: number, isStuck = false): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < times; at += 1) {
    await after(waitMs);
    yield new Uint8Array(bytes);
  }
  if (isStuck) await new Promise(() => undefined);
}
async function sizeOf(source: AsyncIterable<Uint8Array>, waitMs = 0): Promise<number> {
  let size = 0;
  for await (const chunk of source) {
    size += chunk.length;
    if (waitMs > 0) await after(waitMs);
  }
  return size;
}

test('a sender that makes progress is never cut, however long it takes', async () => {
  expect(await sizeOf(paced(sender(60, 10, 4), RULES))).toBe(600);
  expect(await sizeOf(paced(sender(3, 12, 60), { windowMs: 200, bytesPerWindow: 10 }))).toBe(36);
});

test('time in which the receiver does not read does not count', async () => {
  expect(await sizeOf(paced(sender(4, 1, 1), RULES), 60)).toBe(4);
});

test('a sender that stands still, or sends too little, is cut', async () => {
  await expect(sizeOf(paced(sender(1, 5, 1, true), RULES))).rejects.toMatchObject({ code: 'body_too_slow' });
  await expect(sizeOf(paced(sender(1, 1_000, 1, true), RULES))).rejects.toMatchObject({ code: 'body_too_slow' });
  await expect(sizeOf(paced(sender(100, 1, 20), RULES))).rejects.toMatchObject({ code: 'body_too_slow' });
});

test('an error of the sender is passed on', async () => {
  const broken = async function* (): AsyncGenerator<Uint8Array> {
    yield new Uint8Array(1);
    await after(1);
    throw new Error('cut');
  };
  await expect(sizeOf(paced(broken(), RULES))).rejects.toThrow('cut');
});
