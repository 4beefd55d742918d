import { describe, expect, test } from 'vitest';
import { itemsText } from '#shared/domain/event-stream.ts';
import type { TaskId } from '#shared/domain/ids.ts';
import { callbackBody, callbackHeaders } from '#scheduler/tasks/webhooks/callbacks.ts';
import { Places } from '#scheduler/tasks/webhooks/places.ts';

test('the body holds the bytes of the result, and the headers sign exactly it', () => {
  const body = Buffer.from(callbackBody('{"n": 1.0, "text":"é"}'));
  expect(body.toString()).toBe('{"data":{"n": 1.0, "text":"é"}}');
  // Made with: printf '%s:1700000000' "$(printf '%s' "$body" | base64 -w0)" | openssl dgst -sha256 -hmac sk_test
  expect(callbackHeaders({ taskId: 't-1' as TaskId, status: 'COMPLETE' }, 'sk_test', body, 1_700_000_000)).toEqual({
    'Content-Type': 'application/json',
    'X-Task-ID': 't-1',
    'X-Task-Status': 'COMPLETE',
    'X-Task-Timestamp': '1700000000',
    'X-Task-Signature': '0587d062f67387866eda2b5630ad279f6dd7e768fae23c0af93f297bc4843a94',
  });
});

test("a generator's result is the list of its items, each as it was written", () => {
  const events = 'data: {"data":1.0}\n\ndata: {"text":"a\\n\\nb"}\n\n';
  expect(itemsText(events)).toBe('[{"data":1.0},{"text":"a\\n\\nb"}]');
  expect(itemsText('')).toBe('[]');
});

describe('places', () => {
  test('are few; who waits gets the one that is given back, in order', async () => {
    const places = new Places(1);
    const leave = await places.take(1_000);
    const order: number[] = [];
    const second = places.take(1_000).then((give) => (order.push(2), give));
    const third = places.take(1_000).then((give) => (order.push(3), give));
    expect(order).toEqual([]);
    leave();
    leave();
    (await second)();
    (await third)();
    expect(order).toEqual([2, 3]);
    (await places.take(0))();
  });

  test('of one owner are fewer, and owners take turns', async () => {
    const places = new Places(2, 1);
    const order: string[] = [];
    const given: (() => void)[] = [];
    const come = (owner: string) =>
      places.take(60_000, owner).then((leave) => {
        order.push(owner);
        given.push(leave);
      });
    await Promise.all([come('busy'), come('other')]);
    const busy = [come('busy'), come('busy')];
    const late = come('late');
    // The place of `busy` goes to the workspace that has none, although two of its own wait longer.
    given[0]?.();
    await late;
    given[1]?.();
    await busy[0];
    expect(order).toEqual(['busy', 'other', 'late', 'busy']);
    // A place is free, and `busy` has one.
    given[2]?.();
    await come('late');
    expect(order).toHaveLength(5);
    given[3]?.();
    await busy[1];
    for (const leave of given) leave();
    await Promise.all([come('busy'), come('late')]);
    for (const leave of given) leave();
  });

  test('are not waited for longer than is said', async () => {
    const places = new Places(1);
    const leave = await places.take(1_000);
    await expect(places.take(1)).rejects.toThrow('no place became free');
    leave();
    (await places.take(0))();
  });
});
