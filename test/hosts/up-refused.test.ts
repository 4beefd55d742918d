// `longshore up` when it cannot start: it says why, and leaves nothing running.
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { delimiter, join } from 'node:path';
import { describe, expect } from 'vitest';
import { test, waitFor } from '../helpers/services.ts';
import { expectNothingLeft, home, longshore, run, up } from '../e2e/up-home.ts';

describe('longshore up that cannot start', () => {
  test('because its port is taken says so, and leaves nothing running', async () => {
    const here = home();
    const blocker = createServer().listen(0, '127.0.0.1');
    await waitFor(() => blocker.listening, 'the port is taken');
    const address = blocker.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    const ended = await run(here, 'up', '--port', String(port));
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain(String(port));
    expect(ended.stderr).toContain('LONGSHORE_HTTP_ADDRESS');
    expect(ended.stderr).not.toContain('starting');
    const metrics = { LONGSHORE_AGENT_METRICS_ADDRESS: `127.0.0.1:${port}` };
    expect((await longshore(here, ['up'], metrics).ended).stderr).toBe(
      `longshore: cannot listen on 127.0.0.1:${port}: another program has that port; stop it or set LONGSHORE_AGENT_METRICS_ADDRESS to a free one (port 0 picks one)\n`,
    );
    blocker.close();
    await expectNothingLeft(here);
  });

  test('because no Docker answers says so, and leaves nothing running', async () => {
    const here = home();
    const ended = await longshore(here, ['up'], { DOCKER_HOST: 'unix:///nonexistent/docker.sock' }).ended;
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain('no Docker Engine answers at unix:///nonexistent/docker.sock');
    expect(ended.stderr).toContain('install and start Docker');
    // The engine is looked for first: nothing was started in vain.
    expect(ended.stderr).not.toContain('starting');
    await expectNothingLeft(here);
  });

  test('because its agent does not start leaves the context that commands use, and the next start has its own', async () => {
    const here = home();
    const folder = join(here.env['HOME'] ?? '', '.config', 'longshore');
    mkdirSync(folder, { recursive: true });
    const other = { url: 'http://127.0.0.1:9', token: 'eyJ.other', workspaceId: 'w-1' };
    const before = JSON.stringify({ current: 'local', contexts: { local: other } });
    writeFileSync(join(folder, 'contexts.json'), before);
    // The agent's own directory cannot be made where a file is.
    mkdirSync(here.dataDir, { recursive: true });
    writeFileSync(join(here.dataDir, 'agent'), '');
    const ended = await run(here, 'up');
    rmSync(join(here.dataDir, 'agent'));
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain('scheduler is ready');
    expect(ended.stderr).toContain(join(here.dataDir, 'agent'));
    expect(readFileSync(join(folder, 'contexts.json'), 'utf8')).toBe(before);
    expect((await run(here, 'status')).stderr).toContain('(ECONNREFUSED, context local;');

    const again = await up(here);
    const contexts = JSON.parse((await run(here, 'context', 'list', '--json')).stdout) as unknown;
    expect(contexts).toMatchObject([
      { name: 'local', current: false },
      { name: 'local-2', current: true },
    ]);
    expect((await run(here, 'status')).code).toBe(0);
    again.process.kill('SIGTERM');
    await again.ended;
    await expectNothingLeft(here);
  });

  test('because Redis is not installed says so', async () => {
    const here = home();
    const path = (here.env['PATH'] ?? '').split(delimiter).filter((one) => !existsSync(join(one, 'redis-server')));
    const ended = await longshore(here, ['up'], { PATH: path.join(delimiter) }).ended;
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain('apt-get install redis-server');
    await expectNothingLeft(here);
  });

  test('because a setting is wrong names it', async () => {
    const here = home();
    const ended = await longshore(here, ['up'], { LONGSHORE_LOG_LEVEL: 'loud', LONGSHORE_DTA_DIR: '/x' }).ended;
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain('LONGSHORE_LOG_LEVEL: must be one of');
    expect(ended.stderr).toContain('LONGSHORE_DTA_DIR: no such setting; did you mean LONGSHORE_DATA_DIR?');
    expect(ended.stderr).not.toContain('starting');
    const ofAgent = await longshore(here, ['up'], { LONGSHORE_DEFAULT_PYTHON: '2' }).ended;
    expect(ofAgent).toMatchObject({ code: 1, stdout: '' });
    expect(ofAgent.stderr).toContain('LONGSHORE_DEFAULT_PYTHON: must be');
    expect(ofAgent.stderr).not.toContain('starting');
    await expectNothingLeft(here);
  });

  test('because its data directory cannot be made says so', async () => {
    const ended = await run(home(), 'up', '--data-dir', '/proc/longshore');
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain('cannot write to the data directory /proc/longshore');
  });

  test('because another one runs on its directory says so, and does it no harm', async () => {
    const here = home();
    const first = await up(here);
    const second = await run(here, 'up');
    expect(second.code).toBe(1);
    expect(second.stderr).toContain(`another \`longshore up\` runs with the data directory ${here.dataDir}`);
    expect((await run(here, 'status')).code).toBe(0);
    first.process.kill('SIGTERM');
    await first.ended;
    await expectNothingLeft(here);
  });
});
