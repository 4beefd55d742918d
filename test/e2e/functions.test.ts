// Functions and schedules as people use them: the command line deploys a file,
// Python calls it, containers run it. Scheduled functions run without a call.
import { describe, expect } from 'vitest';
import { appFolder } from '../helpers/app-folder.ts';
import { test } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

/** Number of tasks of that handler in that status. */
const tasksIn = async (platform: Platform, name: string, status: string): Promise<number> => {
  const filters = encodeURIComponent(JSON.stringify({ status: [status] }));
  const { tasks } = await platform.gateway<{ tasks: readonly { readonly stubName: string }[] }>(
    `/tasks?limit=1000&filters=${filters}`,
  );
  return tasks.filter(({ stubName }) => stubName === name).length;
};

describe('a file with a function and a schedule', () => {
  test('is deployed by the command line, called from Python, and runs by itself', async ({ platform }) => {
    const app = appFolder(platform, 'functions', 'test/fixtures/apps/functions.py');
    try {
      const said = await app.longshore('deploy', 'app.py:add');
      expect(said).toMatch(/adding version 1 is deployed: .*\/function\/adding\/v1/);
      expect(said).toContain('invoke adding --kind function');
      const called = JSON.parse(await app.python()) as Readonly<Record<string, unknown>>;
      expect(called).toMatchObject({
        remote: { sum: 3, type: 'function/deployment', container: expect.stringMatching(/^function-/) },
        map: [10, 20, 30],
        // A handler that raises is not tried again.
        error: ['ERROR', "KeyError: 'a'"],
      });
      const put = await platform.taskIs(String(called['put']), 'COMPLETE', 30_000);
      expect(put).toMatchObject({ result: { sum: 5 } });
      expect(await app.longshore('invoke', 'adding', '--kind', 'function', '--data', '{"a": 1}')).toContain('task_id');

      // Numbers come back as they are in Python.
      const sums = [
        ['9007199254740992', '1', '9007199254740993'],
        ['0.5', '0.5', '1.0'],
        ['10**25', '0', '10000000000000000000000000'],
      ] as const;
      const shown = sums.map(([a, b]) => `add.remote(${a}, b=${b})["sum"]`).join(', ');
      expect((await app.program(`from app import add; print(${shown})`)).stdout).toBe(
        `${sums.map(([, , sum]) => sum).join(' ')}\n`,
      );

      // The file is edited after its deploy: calls reach the deployed version, and the program says so.
      app.edit("{'sum': a + b,", "{'sum': a - b,");
      const program = 'from app import add; print(add.remote(3, b=1)["sum"]); print(add.remote(3, b=1)["sum"])';
      const old = await app.program(program);
      expect(old.stdout).toBe('4\n4\n');
      expect(old.stderr.split('\n').filter((line) => line.startsWith('note: '))).toEqual([
        'note: calls of adding run its deployed version 1, and the file differs from it (app.py): `longshore deploy app.py:add` deploys the file, LONGSHORE_RUN=file runs it as it is',
      ]);
      expect(await app.program(program, { LONGSHORE_RUN: 'file' })).toMatchObject({ stdout: '2\n2\n' });
      await app.longshore('deploy', 'app.py:add');
      expect(await app.program(program)).toMatchObject({ stdout: '2\n2\n', stderr: '' });

      await app.longshore('deploy', 'app.py:tick');
      const ended = async () => {
        const listed = await app.longshore('task', 'list', '--deployment', 'every-second', '--json');
        return (JSON.parse(listed) as { id: string; status: string }[]).filter((task) => task.status === 'COMPLETE');
      };
      const [first] = await waitFor(async () => (await ended()).length >= 3 && (await ended()), 'it has run', 60_000);
      expect(await platform.task(first?.id ?? '')).toMatchObject({ result: { args: [], kwargs: {} } });
      expect(await app.longshore('explain', 'every-second')).toMatch(
        /its times are "\* \* \* \* \* \*" in UTC; the next is/,
      );
      await app.longshore('deployment', 'delete', 'every-second');
    } finally {
      app.remove();
    }
  });

  test('are tried again for the exceptions that they name, and end with the programs that wait for them', async ({
    platform,
  }) => {
    const app = appFolder(platform, 'programs', 'test/fixtures/apps/functions.py');
    try {
      // A function is tried again for the exceptions that it names.
      expect(await app.longshore('deploy', '--dry-run', 'app.py:flaky')).toContain('2 retries after OSError');
      const tried = await app.program(`
from app import flaky, TaskError
print(flaky.remote('once', 1))
try:
    flaky.remote('key', 1, 'key')
except TaskError as error:
    print(error.status, flaky.remote('key', 0))
`);
      expect(tried).toMatchObject({ code: 0, stdout: '2\nERROR 2\n' });

      // Ctrl-C cancels what a program waits for.
      const calls = ['slow.remote(60)', 'list(slow.map([60, 60], ordered=False))'];
      const waiting = calls.map((call) => app.started(`from app import slow; ${call}`));
      await waitFor(
        async () => (await tasksIn(platform, 'slow', 'RUNNING')) === 3,
        'both programs wait for what runs',
        60_000,
      );
      for (const { child } of waiting) child.kill('SIGINT');
      const left = await Promise.all(waiting.map(async (program) => (await program.ended).stderr.split('\n').at(-2)));
      expect(left).toEqual([
        expect.stringMatching(/^stopped: task \S+ was cancelled$/),
        'stopped: 2 tasks were cancelled',
      ]);
      await waitFor(async () => (await tasksIn(platform, 'slow', 'CANCELLED')) === 3, 'they are cancelled', 30_000);
    } finally {
      app.remove();
    }
  });

  test('and an endpoint whose calls wait at a bound says which', async ({ platform }) => {
    const app = appFolder(platform, 'bounds', 'test/fixtures/apps/functions.py');
    try {
      // Calls that wait at a bound: who asks is told which.
      expect(await app.longshore('deploy', '--dry-run', 'app.py:wide')).toContain(
        '0 to 10 containers, one for 6 tasks, ',
      );
      await app.longshore('deploy', 'app.py:narrow');
      const served = [8, 0, 0].map((seconds) => platform.call('/endpoint/narrow', { body: { seconds } }));
      await waitFor(async () => (await tasksIn(platform, 'narrow', 'RUNNING')) === 1, 'one runs', 60_000);
      const [explained, top] = await Promise.all([app.longshore('explain', 'narrow'), app.longshore('top', '--once')]);
      expect(explained).toMatch(/narrow v1 is BUSY: \d calls? waits? .*there are no more: max_containers is 1/);
      expect(explained).toContain('raise max_containers');
      expect(top).toMatch(/^narrow\/v1 +endpoint .* max_containers 1$/m);
      expect((await Promise.all(served)).map(({ status }) => status)).toEqual([200, 200, 200]);

      // An input that the handler does not take is its caller's mistake.
      for (const [body, error] of [
        [{}, 'seconds: is missing'],
        [{ seconds: '1' }, 'seconds: must be a number, not text'],
      ] as const) {
        const refused = await platform.call('/endpoint/narrow', { body });
        expect([refused.status, JSON.parse(refused.text)]).toMatchObject([422, { error, detail: expect.any(String) }]);
        expect(await platform.taskIs(refused.taskId, 'ERROR')).toMatchObject({
          failure_reason: 'invalid_request_payload',
        });
      }
    } finally {
      app.remove();
    }
  });
});
