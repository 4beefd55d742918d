// Pods and sandboxes of the Python module, from a program that was written for the published packages.
import { describe, expect } from 'vitest';
import { appFolder } from '../helpers/app-folder.ts';
import { runProgram } from '../helpers/services.ts';
import { MAIN, ROOT, test } from '../helpers/platform.ts';

const LONG_MS = 170_000;
type Said = Readonly<Record<'sandbox' | 'pod', Readonly<Record<string, unknown>>>>;

describe('a program that makes pods and sandboxes', () => {
  test('runs as it is', { timeout: LONG_MS }, async ({ platform }) => {
    const app = appFolder(platform, 'sandboxes', 'test/fixtures/apps/sandboxes.py');
    try {
      const printed = await app.python();
      const { sandbox, pod } = JSON.parse(printed.slice(printed.indexOf('{'))) as Said;
      expect(sandbox).toEqual({
        ran: [3, 'é red\n', 'bad\n'],
        lines: ['1\n', '2\n', '3\n', 'end'],
        first: 'ready\n',
        status: [-1, 'running'],
        listed: ['python3', '/tmp'],
        late: expect.stringMatching(/^program \d+ did not end within 0\.2 s$/) as string,
        killed: 137,
        stdin: '100000',
        many: 3_000_000,
        nowhere: expect.stringContaining('/nowhere: No such file or directory') as string,
        same: true,
        stat: ['note.txt', 11, false, '0o600', true],
        files: ['down', 'note.txt'],
        found: [['/tmp/deep/note.txt', 'two', 2]],
        text: 'one é\nthree\n',
        gone: expect.stringMatching(/^cannot read .*note\.txt: No such file or directory$/) as string,
        urls: true,
        page: 'hello from the sandbox',
        same_box: '1\n',
        env: [],
        memory: expect.stringContaining('create-image-from-filesystem keeps the files') as string,
        aio: [['0\n'], ['1\n'], ['2\n'], ['3\n'], ['4\n']],
        alive: null,
        ended: 143,
      });
      expect(pod).toEqual({
        page: true,
        status: 'RUNNING',
        after: 'STOPPED',
        other: 'STOPPED',
        url: expect.any(String) as string,
      });
    } finally {
      app.remove();
    }
  });

  test('has its pod deployed by the command line', { timeout: LONG_MS }, async ({ platform }) => {
    const app = appFolder(platform, 'deployed-pod', 'test/fixtures/apps/sandboxes.py');
    try {
      const said = await app.longshore('deploy', 'app.py:site', '--json');
      const { url } = JSON.parse(said.slice(said.indexOf('{\n'))) as { readonly url: string };
      expect(new URL(url).pathname).toMatch(/^\/pod\/public\/[0-9a-f-]{36}\/8000$/);
      const page = await fetch(`${url}/app.py`);
      expect([page.status, await page.text()]).toEqual([200, expect.stringContaining('from beam import') as string]);
    } finally {
      app.remove();
    }
  });
});

test('`prepare -` makes a stub of a definition on stdin, and refuses what is none', async ({ platform }) => {
  const env = { PATH: process.env['PATH'], LONGSHORE_URL: platform.url, LONGSHORE_TOKEN: platform.token };
  const prepare = (text: string): Promise<string> =>
    runProgram('sh', ['-c', `printf %s "$TEXT" | "$0" "$@"`, process.execPath, MAIN, 'prepare', '-', '--json'], {
      cwd: ROOT,
      env: { ...env, TEXT: text },
    });
  const definition = { name: 'box', stubType: 'sandbox', cpu: 100, memory: 128, image: {}, volumes: [], secrets: [] };
  expect(JSON.parse(await prepare(JSON.stringify(definition)))).toMatchObject({ name: 'box', kind: 'sandbox' });
  await expect(prepare('[]')).rejects.toThrow('stdin has no JSON object with the texts name and stubType');
  await expect(prepare(JSON.stringify({ ...definition, cpu: 0 }))).rejects.toThrow('CPU must be greater than 0');
});
