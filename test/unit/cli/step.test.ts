import { afterEach, expect, test, vi } from 'vitest';
import { shownStep } from '#cli/up/step.ts';

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

test('a step that takes long says every two seconds that it goes on and where its output is, and nothing after its end', async () => {
  vi.useFakeTimers();
  const written: string[] = [];
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => written.push(String(text)) > 0);
  const step = shownStep('scheduler', '/data/logs/scheduler.log', async () => {
    await new Promise((resolve) => setTimeout(resolve, 5_000));
    return 7;
  });
  await vi.advanceTimersByTimeAsync(60_000);
  expect(await step).toBe(7);
  expect(written).toEqual([
    '- starting the scheduler ...\n',
    '- starting the scheduler ... still at it after 2 s (its output: /data/logs/scheduler.log)\n',
    '- starting the scheduler ... still at it after 4 s (its output: /data/logs/scheduler.log)\n',
    '- scheduler is ready (5.0 s)\n',
  ]);

  written.length = 0;
  await expect(shownStep('Redis', '/r.log', () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  await vi.advanceTimersByTimeAsync(60_000);
  expect(written).toEqual(['- starting Redis ...\n']);
});
