// Redis' health on the metrics page, with a real Redis that goes and comes back.
import { expect } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import { Registry } from '#shared/metrics.ts';
import { createLog } from '#shared/log.ts';
import { connectRedis } from '#scheduler/stores/embedded/connect.ts';
import { watchRedis } from '#scheduler/stores/embedded/redis-metrics.ts';
import { test, waitFor } from '../helpers/services.ts';

const log = createLog({ name: 'test', level: 'silent' });

test('commands are timed, one in so many, pipelines and failures too; up is 1 while every connection stands', async ({
  redis,
}) => {
  const registry = new Registry();
  const target = { socketPath: redis.socketPath };
  const [busy, quiet] = await Promise.all([connectRedis(target, 'busy', log), connectRedis(target, 'quiet', log)]);
  try {
    watchRedis(registry, systemClock, [
      { role: 'tasks', client: busy, oneIn: 8 },
      { role: 'control', client: quiet, oneIn: 1 },
    ]);
    const page = (): Promise<string> => registry.metrics();
    const counted = async (role: string): Promise<number> =>
      Number(
        new RegExp(`redis_command_duration_seconds_count\\{class="${role}"\\} (\\d+)`).exec(await page())?.[1] ?? 0,
      );

    await Promise.all(Array.from({ length: 64 }, () => busy.ping()));
    expect(await counted('tasks')).toBe(8);
    expect((await quiet.pipeline().set('a', '1').get('a').exec())?.[1]).toEqual([null, '1']);
    await expect(quiet.lpush('a', 'not a list')).rejects.toThrow('WRONGTYPE');
    expect(await counted('control')).toBe(3);
    expect(await page()).toContain('longshore_scheduler_redis_up 1');

    await redis.crash();
    await waitFor(
      async () => (await page()).includes('longshore_scheduler_redis_up 0'),
      'the page says that it is down',
    );
    await redis.restart();
    await waitFor(
      async () => (await page()).includes('longshore_scheduler_redis_up 1'),
      'the page says that it is back',
    );
  } finally {
    busy.disconnect();
    quiet.disconnect();
  }
});
