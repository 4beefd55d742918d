// `longshore top` on a real terminal and without one, against a real scheduler and agent.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { expect } from 'vitest';
import { MAIN, test } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/programs.ts';
import { terminal as terminalProgram } from '../helpers/terminal.ts';

const WAIT_MS = 30_000;

interface Running {
  readonly child: ChildProcess;
  readonly out: () => string;
  readonly code: Promise<number | null>;
}

function top(platform: Platform, args: readonly string[], terminal = false, token = platform.token): Running {
  const line = [process.execPath, MAIN, 'top', ...args];
  const [file = '', ...rest] = terminal ? ['python3', '-c', terminalProgram(), ...line] : line;
  const child = spawn(file, rest, {
    env: { ...platform.env(), TERM: 'xterm', LONGSHORE_URL: platform.url, LONGSHORE_TOKEN: token },
    stdio: 'pipe',
  });
  let out = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (out += text));
  const code = new Promise<number | null>((resolve) => child.once('close', resolve));
  return { child, out: () => out, code };
}

test(
  'the administrator sees machines, queues and containers; a workspace its own',
  { timeout: 120_000 },
  async ({ platform }) => {
    const stubType = 'taskqueue/deployment';
    await platform.deploy({ app: 'examples/slow/app.py', handler: 'handler', name: 'topped', stubType, workers: 1 });
    for (let task = 0; task < 3; task += 1) await platform.call('/taskqueue/topped', { body: { seconds: 60 } });
    const isShown = (text: string): boolean => /\ntopped\/v1 +taskqueue +2 +1 +\d+s +1\n/.test(text);
    const once = await waitFor(
      async () => {
        const running = top(platform, ['--once']);
        expect(await running.code, running.out()).toBe(0);
        return isShown(running.out()) ? running.out() : undefined;
      },
      'one task runs and two wait',
      60_000,
    );
    expect(once).toMatch(/^\d\d:\d\d:\d\d {2}1 machine {2}1 container {2}2 tasks waiting, 1 running\n/);
    expect(once).toMatch(/MACHINE .*\n\S+ +\S+ +available +\d+% of \d/);
    expect(once).toMatch(/CONTAINER .*\n[0-9a-f]{8} +topped\/v1 +RUNNING /);
    const made = await platform.call('/api/v1/workspace', { body: { name: 'another' } });
    const { token } = JSON.parse(made.text) as { readonly token: string };
    const other = top(platform, ['--once'], false, token);
    expect(await other.code).toBe(0);
    expect(other.out()).toMatch(/^\S+ {2}0 machines {2}0 containers {2}0 tasks waiting, 0 running\n\nQUEUE/);
    const json = top(platform, ['--json']);
    expect(await json.code).toBe(0);
    expect(JSON.parse(json.out())).toMatchObject({
      url: platform.url,
      machines: [{ status: 'available' }],
      isCut: false,
    });
  },
);

test(
  'on a terminal it draws itself again, survives nothing less than q, and gives the terminal back',
  {
    timeout: 120_000,
  },
  async ({ platform }) => {
    const running = top(platform, [], true);
    const draws = (): number => running.out().split('\u001b[H').length - 1;
    await waitFor(() => draws() >= 3, 'it was drawn three times', WAIT_MS);
    expect(running.out().startsWith('\u001b[?1049h')).toBe(true);
    running.child.stdin?.write('x');
    const before = draws();
    await waitFor(() => draws() > before, 'it goes on', WAIT_MS);
    running.child.stdin?.write('q');
    expect(await running.code).toBe(0);
    expect(running.out().trimEnd().endsWith('\u001b[?1049l')).toBe(true);

    const interrupted = top(platform, [], true);
    await waitFor(() => interrupted.out().includes('MACHINE'), 'it is drawn', WAIT_MS);
    interrupted.child.stdin?.write('\u0003');
    expect(await interrupted.code).toBe(0);
  },
);
