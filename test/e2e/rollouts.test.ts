// A redeploy under calls: they stay with the version that is ready until the new one is, and when it does not start.
import { expect } from 'vitest';
import { test } from '../helpers/platform.ts';
import { RolloutApp, slowestMs } from '../helpers/rollout-app.ts';

test(
  'calls go on without an error while a new version starts, and move to it; one that fails changes nothing',
  { timeout: 120_000 },
  async ({ platform }) => {
    const app = new RolloutApp(platform, 'rolled');
    expect(await app.deploy(1, 'pass')).toMatchObject({ code: 0 });
    expect(await app.call()).toMatchObject({ status: 200, version: 1 });

    let over = false;
    const calling = app.callers(3, () => over);
    const begun = performance.now();
    const deployed = await app.deploy(2, 'time.sleep(3)');
    const moved = performance.now();
    const after = await app.call();
    over = true;
    const calls = await calling;
    expect(deployed).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('calls of rolled reach v2 now: a container of it is ready') as string,
    });
    expect(after.version).toBe(2);
    expect(calls.filter(({ status }) => status !== 200)).toEqual([]);
    // The start takes three seconds, in which the version before answers.
    const during = calls.filter(({ atMs }) => atMs > begun && atMs < moved);
    expect(during.filter(({ version }) => version === 1).length).toBeGreaterThan(3);
    process.stdout.write(
      `${during.length} calls in the redeploy, the slowest took ${Math.round(slowestMs(during))} ms\n`,
    );
    expect(slowestMs(during)).toBeLessThan(10_000);

    const failed = await app.deploy(3, 'raise ValueError("no model")');
    expect(failed.code).toBe(1);
    expect(failed.stderr).toContain('calls of rolled do not reach v3: the start of endpoint-');
    expect(failed.stderr).toContain('ValueError: no model');
    expect(await app.call()).toMatchObject({ status: 200, version: 2 });
    // A name means the version that serves; the failed one is compared with it.
    expect((await app.run('explain', 'rolled')).stdout).toContain('rolled v2 is');
    expect((await app.run('deployment', 'diff', 'rolled')).stdout).toBe('rolled v2 to v3\nfiles:\n  ~ app.py\n');
    expect((await app.run('logs', 'rolled/v3')).stdout).toContain('ValueError: no model');
  },
);
