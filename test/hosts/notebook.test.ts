// A notebook in a pod, whose image has JupyterLab from PyPI: the build takes longer than `npm test` may.
import { request } from 'node:http';
import { text } from 'node:stream/consumers';
import { expect } from 'vitest';
import { MAIN, ROOT, test } from '../helpers/platform.ts';
import { runProgram } from '../helpers/services.ts';

const LONG_MS = 600_000;

test('JupyterLab answers on a host of its own', { timeout: LONG_MS }, async ({ platform }) => {
  const env = {
    PATH: process.env['PATH'],
    HOME: platform.directory,
    LONGSHORE_URL: platform.url,
    LONGSHORE_TOKEN: platform.token,
  };
  const args = [MAIN, 'deploy', 'examples/notebook/app.py', '--json'];
  const said = await runProgram(process.execPath, args, { cwd: ROOT, env }, LONG_MS);
  const { hostUrl } = JSON.parse(said.slice(said.indexOf('{\n'))) as { readonly hostUrl: string };
  const { host, port } = new URL(hostUrl);
  /** Names below `localhost` are this machine, whether or not its resolver knows so. */
  const get = (path: string, token = platform.token): Promise<readonly [status: number, body: string]> =>
    new Promise((resolve, reject) => {
      const headers = { host, authorization: `Bearer ${token}` };
      const asked = request({ host: '127.0.0.1', port, path, headers }, (answer) => {
        text(answer).then((body) => resolve([answer.statusCode ?? 0, body]), reject);
      });
      asked.on('error', reject);
      asked.end();
    });
  expect((await get('/api', 'wrong'))[0]).toBe(401);
  const [status, body] = await get('/api');
  expect([status, JSON.parse(body)]).toEqual([200, { version: expect.any(String) as string }]);
  const [found, page] = await get('/lab');
  expect([found, page]).toEqual([200, expect.stringContaining('<title>JupyterLab</title>') as string]);
  expect(JSON.parse((await get('/api/contents'))[1])).toMatchObject({ type: 'directory', content: [] });
});
