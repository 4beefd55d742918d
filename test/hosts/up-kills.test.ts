// `longshore up` after kills: of all of it, of itself alone, and of each of its daemons.
import { describe, expect } from 'vitest';
import { test, waitFor } from '../helpers/services.ts';
import { EXAMPLE, expectNothingLeft, home, pidOf, processesOf, run, tokenOf, up } from '../e2e/up-home.ts';

const BACK_MS = 30_000;

describe('longshore up', () => {
  test('after kill -9 of the whole tree brings it all back', async () => {
    const here = home();
    await up(here, '--example', EXAMPLE);
    const token = await tokenOf(here);
    const pids = processesOf(here).map((one) => one.pid);
    expect(pids.length).toBeGreaterThanOrEqual(4);
    for (const pid of pids) process.kill(pid, 'SIGKILL');

    const again = await up(here, '--example', EXAMPLE);
    expect(again.stdout()).toContain('{"greeting":"Hello, world!"}');
    expect(again.stderr()).toContain('hello is deployed already (version 1)');
    expect(await tokenOf(here)).toBe(token);
    again.process.kill('SIGTERM');
    expect((await again.ended).code).toBe(0);
    await expectNothingLeft(here);
  });

  test('killed alone is noticed by its children, and the next one starts at once', async () => {
    const here = home();
    const first = await up(here);
    const scheduler = pidOf(here, 'main.ts scheduler');
    first.process.kill('SIGKILL');
    await first.ended;
    const second = await up(here);
    expect(processesOf(here).map((one) => one.pid)).not.toContain(scheduler);
    expect(processesOf(here).filter((one) => one.command.includes('redis-server'))).toHaveLength(1);
    second.process.kill('SIGTERM');
    expect((await second.ended).code).toBe(0);
    await expectNothingLeft(here);
  });

  test('starts a scheduler, an agent and a Redis that died again, at the same address', async () => {
    const here = home();
    const running = await up(here, '--example', EXAMPLE);
    for (const name of ['main.ts scheduler', 'main.ts agent', 'redis-server']) {
      const pid = pidOf(here, name);
      process.kill(pid, 'SIGKILL');
      await waitFor(
        () => processesOf(here).some((one) => one.command.includes(name) && one.pid !== pid),
        `${name} is there again`,
        BACK_MS,
      );
      await waitFor(
        async () => (await run(here, 'invoke', 'hello')).code === 0,
        `a call is answered after the death of ${name}`,
        BACK_MS,
      );
    }
    running.process.kill('SIGTERM');
    expect((await running.ended).code).toBe(0);
    await expectNothingLeft(here);
  });
});
