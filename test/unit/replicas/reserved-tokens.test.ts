import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { InstanceId, QueueName } from '#shared/domain/ids.ts';
import { newInstanceId } from '#shared/domain/ids.ts';
import type { Bus } from '#scheduler/cluster/bus.ts';
import { ALONE } from '#scheduler/cluster/bus.ts';
import { ReservedTokens } from '#scheduler/cluster/reserved-tokens.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const queue = 'tq-a' as QueueName;

/** Replicas whose messages reach each other in order. */
function replicas(count: number): readonly ReservedTokens[] {
  const listeners: ((message: unknown) => void)[] = [];
  const bus: Bus = {
    ...ALONE,
    on: (_channel, listener) => void listeners.push(listener),
    publish: (_channel, message) => {
      for (const listener of listeners) listener(JSON.parse(JSON.stringify(message)));
    },
  };
  return Array.from({ length: count }, () => {
    const tokens = new ReservedTokens({ bus, channel: 'decide', instance: newInstanceId() });
    tokens.start();
    return tokens;
  });
}

describe('tokens reserved by calls', () => {
  test('a reservation counts from its begin to its end, which comes once', () => {
    const [here] = replicas(1) as [ReservedTokens];
    const first = here.reserve(queue, 100);
    const second = here.reserve(queue, 40);
    expect(here.of(queue)).toBe(140);
    first();
    first();
    expect(here.of(queue)).toBe(40);
    second();
    expect(here.of(queue)).toBe(0);
    expect(here.size).toBe(0);
    here.stop();
  });

  test('replicas hear of each other, and are told when others grow', () => {
    const [one, two, three] = replicas(3) as [ReservedTokens, ReservedTokens, ReservedTokens];
    const grown: QueueName[] = [];
    two.onGrown((name) => grown.push(name));
    const end = one.reserve(queue, 100);
    three.reserve(queue, 7);
    vi.advanceTimersByTime(250);
    expect([one, two, three].map((each) => each.of(queue))).toEqual([107, 107, 107]);
    expect(grown).toEqual([queue, queue]);
    end();
    vi.advanceTimersByTime(250);
    expect([one, two, three].map((each) => each.of(queue))).toEqual([7, 7, 7]);
    expect(grown).toHaveLength(2);
  });

  test('a replica that began later hears of open calls; the figures of one that died lapse', () => {
    const [one, two] = replicas(2) as [ReservedTokens, ReservedTokens];
    one.reserve(queue, 100);
    vi.advanceTimersByTime(250);
    one.stop();
    vi.advanceTimersByTime(20_000);
    expect(two.of(queue)).toBe(100);
    vi.advanceTimersByTime(20_000);
    expect(two.of(queue)).toBe(0);
    expect(two.size).toBe(0);
  });

  test('figures are told again while calls are open', () => {
    const listeners: ((message: unknown) => void)[] = [];
    let isCut = true;
    const bus: Bus = {
      ...ALONE,
      on: (_channel, listener) => void listeners.push(listener),
      publish: (_channel, message) => void (isCut || listeners.forEach((listener) => listener(message))),
    };
    const [one, two] = ['a', 'b'].map(
      (name) => new ReservedTokens({ bus, channel: 'decide', instance: name as InstanceId }),
    ) as [ReservedTokens, ReservedTokens];
    one.start();
    one.reserve(queue, 100);
    vi.advanceTimersByTime(1000);
    expect(two.of(queue)).toBe(0);
    isCut = false;
    vi.advanceTimersByTime(10_000);
    expect(two.of(queue)).toBe(100);
    vi.advanceTimersByTime(60_000);
    expect(two.of(queue)).toBe(100);
    one.stop();
  });
});
