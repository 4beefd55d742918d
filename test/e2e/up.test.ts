// `longshore up` as a person meets it: from an empty directory to an answer, and again. Kills: test/hosts/up-kills.
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { runProgram, test, waitFor } from '../helpers/services.ts';
import { EXAMPLE, ROOT, expectNothingLeft, home, pidOf, run, tokenOf, up } from './up-home.ts';

const BACK_MS = 30_000;

describe('longshore up', () => {
  test('brings the answer of the example, stops without a trace, and finds everything again', async () => {
    const here = home();
    const first = await up(here, '--example', EXAMPLE);
    expect(first.stdout()).toContain('{"greeting":"Hello, world!"}');
    expect(first.stderr()).toContain('hello is deployed (version 1)');
    const token = await tokenOf(here);
    expect(first.stdout()).toContain(`Token: ${token}`);
    expect(first.stdout()).toMatch(/^Console: http:\/\/127\.0\.0\.1:\d+\/console\/enter#[\w-]{43} /m);
    expect(first.stdout().split('Next:\n')[1]?.trim().split('\n')).toHaveLength(3);
    const contextFile = join(here.env['HOME'] ?? '', '.config', 'longshore', 'contexts.json');
    expect(statSync(contextFile).mode & 0o777).toBe(0o600);

    const invoked = await run(here, 'invoke', 'hello', '--data', '{"name": "Ada"}');
    expect(invoked).toMatchObject({ code: 0, stdout: '{"greeting":"Hello, Ada!"}\n' });
    const logs = await waitFor(
      async () => {
        const shown = await run(here, 'logs', 'hello');
        return shown.stdout.includes('greeting Ada') && shown;
      },
      'the line the handler wrote is in the log',
      20_000,
    );
    expect(logs.code).toBe(0);
    const status = await run(here, 'status', '--json');
    expect(JSON.parse(status.stdout)).toMatchObject({
      scheduler: { status: 'ready' },
      machines: [{ poolName: 'default' }],
      deployments: [{ name: 'hello', version: 1, active: true }],
      containers: [{ status: 'RUNNING' }],
    });

    first.process.kill('SIGINT');
    expect((await first.ended).code).toBe(0);
    await expectNothingLeft(here);

    // The image that set-up found or built is found again without being told.
    const second = await up(
      { ...here, env: { ...here.env, LONGSHORE_BASE_IMAGE: '' } },
      '--registry',
      '--example',
      EXAMPLE,
    );
    expect(second.stderr()).toContain('hello is deployed already (version 1)');
    expect(second.stdout()).toContain('{"greeting":"Hello, world!"}');
    expect(await tokenOf(here)).toBe(token);
    expect(pidOf(here, 'docker-registry serve')).toBeGreaterThan(0);
    second.process.kill('SIGTERM');
    expect((await second.ended).code).toBe(0);
    await expectNothingLeft(here);
  });

  test('takes its containers along also while a queue waits for more of them', async () => {
    const here = home();
    const app = join(here.env['HOME'] ?? '', 'busy');
    mkdirSync(app);
    writeFileSync(
      join(app, 'app.py'),
      'import time\nfrom longshore import QueueDepthAutoscaler, task_queue\n\n@task_queue(name="busy", autoscaler=QueueDepthAutoscaler(max_containers=3))\ndef busy():\n    time.sleep(3)\n',
    );
    const running = await up(here);
    expect((await run(here, 'deploy', join(app, 'app.py'))).code).toBe(0);
    for (let put = 0; put < 6; put += 1)
      expect((await run(here, 'invoke', 'busy', '--kind', 'taskqueue')).code).toBe(0);
    await waitFor(
      async () => (await run(here, 'task', 'list', '--status', 'RUNNING', '--json')).stdout.includes('RUNNING'),
      'a task runs',
      BACK_MS,
    );
    running.process.kill('SIGINT');
    expect((await running.ended).code).toBe(0);
    await expectNothingLeft(here);
  });

  test('shows a handler that raises, with exit code 1, and goes on', async () => {
    const here = home();
    const app = join(here.env['HOME'] ?? '', 'app');
    mkdirSync(app);
    writeFileSync(
      join(app, 'app.py'),
      'from longshore import endpoint\n\n@endpoint(name="sad")\ndef sad():\n    raise KeyError("x")\n',
    );
    const running = await up(here);
    const deployed = await run(here, 'deploy', join(app, 'app.py'));
    expect(deployed).toMatchObject({ code: 0, stderr: expect.stringContaining('uploading') as string });
    expect(deployed.stdout).toContain('sad version 1 is deployed');
    const invoked = await run(here, 'invoke', 'sad');
    expect(invoked).toMatchObject({ code: 1, stdout: '' });
    expect(invoked.stderr).toContain("sad answered 500: KeyError: 'x'");
    expect((await run(here, 'invoke', 'nobody')).stderr).toContain('no deployment is named nobody');
    running.process.kill('SIGTERM');
    await running.ended;
    await expectNothingLeft(here);
  });
});

/** The block of the README below a heading, in a language. */
function readmeBlock(heading: string, language: string): string {
  const below = readFileSync(join(ROOT, 'README.md'), 'utf8').split(`## ${heading}\n`)[1] ?? '';
  return below.split(`\`\`\`${language}\n`)[1]?.split('\n```')[0] ?? '';
}

describe('the README', () => {
  test('has an app that can be deployed and commands that need nothing but curl', async () => {
    const here = home();
    const app = join(here.env['HOME'] ?? '', 'app');
    mkdirSync(app);
    writeFileSync(join(app, 'app.py'), readmeBlock('Five minutes', 'python'));
    const running = await up(here);
    expect((await run(here, 'deploy', join(app, 'app.py'))).code).toBe(0);
    const invoked = await run(here, 'invoke', 'predict', '--data', '{"text": "hi"}');
    expect(invoked).toMatchObject({ code: 0, stdout: '{"text":"hi","model":"…"}\n' });

    const { url, token } = JSON.parse((await run(here, 'context', 'show', '--json')).stdout) as Record<string, string>;
    const commands = readmeBlock('With curl alone', 'sh').replace(/^URL=.*$/m, `URL=${url} TOKEN=${token}`);
    expect(commands).toContain(String(url));
    const folder = join(here.env['HOME'] ?? '', 'curl');
    mkdirSync(folder);
    expect(await runProgram('bash', ['-e', '-c', commands], { cwd: folder })).toMatch(/\{"greeting":"Hello, Ada!"\}$/);
    running.process.kill('SIGTERM');
    await running.ended;
    await expectNothingLeft(here);
  });
});
