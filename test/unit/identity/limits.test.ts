import { describe, expect, test } from 'vitest';
import {
  DEFAULT_WORKSPACE_LIMITS,
  changed,
  limitsOf,
  readChange,
} from '../../../scheduler/workspaces/identity/limits.ts';

describe('what an administrator says of limits', () => {
  test('is kept beside what was said before, and null is the default again', () => {
    const first = changed({}, readChange({ concurrency: { gpu_limit: 4, cpu_millicore_limit: 8_000 } }));
    const second = changed(first, readChange({ concurrency: { gpu_limit: null }, stub: { max_replicas: 7 } }));
    expect(second).toEqual({ concurrency: { cpu_millicore_limit: 8_000 }, stub: { max_replicas: 7 } });
    expect(changed(second, readChange({ stub: { max_replicas: null } }))).toEqual({
      concurrency: { cpu_millicore_limit: 8_000 },
    });
    const limits = limitsOf(second);
    expect(limits.concurrency).toEqual({ ...DEFAULT_WORKSPACE_LIMITS.concurrency, cpu_millicore_limit: 8_000 });
    expect(limits.stub.max_replicas).toBe(7);
    expect(limits.counts).toEqual(DEFAULT_WORKSPACE_LIMITS.counts);
  });

  test('may be what was shown, with one value changed', () => {
    const shown = {
      workspace_id: 'w',
      usage: { gpu: 0 },
      ...DEFAULT_WORKSPACE_LIMITS,
      counts: {
        tokens: { used: 3, limit: 20 },
        volumes: { used: 0, limit: 1_000 },
        deployments: { used: 1, limit: null },
      },
      billing: { mode: 'postpaid' },
    };
    expect(limitsOf(changed({}, readChange(shown))).counts).toEqual({
      ...DEFAULT_WORKSPACE_LIMITS.counts,
      tokens: 20,
      volumes: 1_000,
      deployments: null,
    });
  });

  test.each([
    [{ concurency: {} }, 'concurency is no limit; there are concurrency, stub, tasks, rate, counts, bytes'],
    [{ stub: 3 }, 'stub must be an object'],
    [{ stub: [] }, 'stub must be an object'],
    [
      { stub: { memory: 3 } },
      'stub.memory is no limit; stub has cpu_millicores, memory_mib, max_replicas, max_gpu_count',
    ],
    [
      { stub: { max_replicas: 0 } },
      'stub.max_replicas must be a whole number from 1 to 10000, or null for the default',
    ],
    [{ concurrency: { gpu_limit: -1 } }, 'concurrency.gpu_limit must be a whole number from 0'],
    [{ concurrency: { gpu_limit: 1.5 } }, 'concurrency.gpu_limit must be a whole number'],
    [{ concurrency: { gpu_limit: '4' } }, 'concurrency.gpu_limit must be a whole number'],
    [{ concurrency: { gpu_limit: 1e12 } }, 'concurrency.gpu_limit must be a whole number'],
    [{ constructor: {} }, 'constructor is no limit'],
    [{ stub: { toString: 1 } }, 'stub.toString is no limit'],
  ])('%j is refused by the name of the field', (body, text) => {
    expect(() => readChange(body as Record<string, unknown>)).toThrow(text);
  });

  test('that a row holds and nobody understands counts as not said', () => {
    for (const stored of [undefined, null, 3, [], { stub: null }, { stub: { max_replicas: 'x' } }]) {
      expect(limitsOf(stored)).toEqual(DEFAULT_WORKSPACE_LIMITS);
    }
  });
});
