// Terminals in a sandbox as in `ssh`: `longshore container shell` and `exec` on a terminal of their own, through a
// whole installation. Sizes, keys, exit codes, bytes of full-screen programs, and a terminal that is lost.
import { existsSync, readFileSync } from 'node:fs';
import { describe, expect } from 'vitest';
import { Cable, ContainerCommand } from '../helpers/container-command.ts';
import { test as base } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { makeSandbox, runIn, sandboxStub } from '../helpers/sandboxes.ts';
import { waitFor } from '../helpers/services.ts';

/** Time after which a terminal is hung up to which nobody came back: docs/pods.md. */
const HUNG_UP_MS = 300_000;

const test = base.extend('box', { scope: 'file' }, async ({ platform }): Promise<string> => {
  const box = await makeSandbox(platform, await sandboxStub(platform, { cpu: 500, keepWarmSeconds: 3600 }));
  await platform.gateway(`/pods/${box}/connect`, {});
  return box;
});

const onTerminal = (platform: Platform, args: readonly string[], url?: string): ContainerCommand =>
  new ContainerCommand(platform, args, { terminal: true, ...(url === undefined ? {} : { url }) });

const commandLine = (pid: number): string =>
  existsSync(`/proc/${pid}/cmdline`) ? readFileSync(`/proc/${pid}/cmdline`, 'utf8') : '';

/** A program that notes signals in a file of that name. */
const noting = (name: string): string =>
  `trap 'echo hup >> /tmp/${name}; exit 0' HUP; echo ready-${name}; while :; do sleep 0.1; done`;
const noted = async (platform: Platform, box: string, name: string): Promise<string> =>
  (await runIn(platform, box, `cat /tmp/${name} 2>/dev/null || true`)).stdout;

describe.concurrent('a terminal in a sandbox', () => {
  test('is a terminal of its size, and follows a new one', async ({ platform, box }) => {
    const shell = onTerminal(platform, ['shell', box]);
    shell.say('tty && stty size\n');
    await shell.seen('/dev/pts/');
    await shell.seen(/30 90/);
    shell.resize(43, 132);
    await waitFor(
      async () => {
        shell.say('stty size\n');
        return shell.out.includes('43 132');
      },
      'it has its new size',
      30_000,
    );
    shell.say('exit 42\n');
    expect(await shell.code).toBe(42);
    expect(shell.leftTerminalAsItWas).toBe(true);
  });

  test('Ctrl-C ends what runs in front and not the shell, and Ctrl-Z and Ctrl-\\ work', async ({ platform, box }) => {
    const shell = onTerminal(platform, ['exec', box, '--', 'sh']);
    for (const [key, code] of [
      ['\u0003', 130],
      ['\u001c', 131],
      ['\u001a', 148],
    ] as const) {
      shell.say(`python3 -c 'import time; print("up", 2 * ${code}, flush=True); time.sleep(1000)'\n`);
      await shell.seen(`up ${2 * code}`);
      shell.say(key);
      shell.say(`echo code-$?-of-$((3*${code}))\n`);
      await shell.seen(`code-${code}-of-${3 * code}`);
    }
    shell.say('kill -9 %1; exit 5\n');
    shell.say('exit 5\n');
    expect(await shell.code).toBe(5);
  });

  test('Ctrl-D ends the input: of a program first, then of the shell', async ({ platform, box }) => {
    const shell = onTerminal(platform, ['exec', box, '--', 'sh']);
    shell.say('PS1=; echo in-$((1+1)); cat; echo over-$((2*2)); (exit 9)\n');
    await shell.seen('in-2');
    shell.say('typed\n');
    await shell.seen('typed\r\ntyped\r\n');
    shell.say('\u0004');
    await shell.seen('over-4');
    shell.say('\u0004');
    expect(await shell.code).toBe(9);
    expect(shell.leftTerminalAsItWas).toBe(true);
  });

  test.for([
    ['TERM', 143],
    ['KILL', 137],
    ['INT', 130],
    ['SEGV', 139],
  ] as const)(
    'an end by SIG%s is exit code %i, with a terminal and without',
    async ([name, code], { platform, box }) => {
      const words = ['exec', box, '--', 'sh', '-c', `kill -${name} $$`];
      const without = new ContainerCommand(platform, words);
      expect(await Promise.all([onTerminal(platform, words).code, without.code])).toEqual([code, code]);
    },
  );

  test('signals to the command without a terminal reach the program', async ({ platform, box }) => {
    const words = ['sh', '-c', "trap 'echo got-term; exit 12' TERM; echo ready; while :; do sleep 0.1; done"];
    const exec = new ContainerCommand(platform, ['exec', box, '--', ...words]);
    await exec.seen('ready');
    exec.child.kill('SIGTERM');
    expect([await exec.code, exec.out]).toEqual([12, 'ready\ngot-term\n']);
  });

  test('bytes of a full-screen program pass unchanged, both ways', async ({ platform, box }) => {
    const program = `
import os, sys, tty
tty.setraw(0)
sys.stdout.write('READY'); sys.stdout.flush()
got = b''
while len(got) < 256: got += os.read(0, 256 - len(got))
os.write(1, b'[' + bytes(range(256)) + b']')
os.write(1, got.hex().encode())
os.write(1, b'OVER')
`;
    const exec = onTerminal(platform, ['exec', box, '--', 'python3', '-c', program]);
    await exec.seen('READY');
    const all = Buffer.from(Array.from({ length: 256 }, (_, at) => at));
    exec.say(all);
    await exec.seen('OVER');
    expect(await exec.code).toBe(0);
    expect(exec.bytes.includes(Buffer.concat([Buffer.from('['), all, Buffer.from(']')]))).toBe(true);
    expect(exec.out).toContain(all.toString('hex'));
    expect(exec.leftTerminalAsItWas).toBe(true);
  });

  test('a link that is cut is made again, and the program gets no HUP', async ({ platform, box }) => {
    const cable = await Cable.to(platform);
    try {
      const shell = onTerminal(platform, ['exec', box, '--', 'sh', '-c', `${noting('cut')}`], cable.url);
      await shell.seen('ready-cut');
      cable.cut();
      await shell.seen('trying again');
      cable.mend();
      await shell.seen('connected again');
      expect(await noted(platform, box, 'cut')).toBe('');
      shell.say('\u0003');
      expect(await shell.code).toBe(130);
    } finally {
      cable.close();
    }
  });

  test('a terminal whose window is closed is hung up at once', async ({ platform, box }) => {
    const shell = onTerminal(platform, ['exec', box, '--', 'sh', '-c', noting('closed')]);
    await shell.seen('ready-closed');
    const pid = await shell.pid();
    // The window is the other side of the terminal.
    shell.child.kill('SIGKILL');
    await waitFor(async () => (await noted(platform, box, 'closed')) === 'hup\n', 'it is hung up', 30_000);
    await waitFor(() => commandLine(pid) === '', 'the command has ended', 30_000);
  });

  test(
    'a terminal whose command was killed, or whose link stays cut, is hung up after 5 minutes, and other programs go on',
    async ({ platform, box }) => {
      const cable = await Cable.to(platform);
      const words = (name: string): readonly string[] => ['exec', box, '--', 'sh', '-c', noting(name)];
      const killed = onTerminal(platform, words('killed'));
      const away = onTerminal(platform, words('away'), cable.url);
      const plain = new ContainerCommand(platform, words('plain'));
      try {
        await Promise.all([killed.seen('ready-killed'), away.seen('ready-away'), plain.seen('ready-plain')]);
        process.kill(await killed.pid(), 'SIGKILL');
        plain.child.kill('SIGKILL');
        cable.cut();
        const fromMs = performance.now();
        await away.seen('trying again');
        const both = async (): Promise<string> =>
          (await noted(platform, box, 'killed')) + (await noted(platform, box, 'away'));
        expect(await both()).toBe('');
        await waitFor(async () => (await both()) === 'hup\nhup\n', 'both are hung up', HUNG_UP_MS + 60_000);
        // No sooner, either: who is away for some minutes finds everything as it was.
        expect(performance.now() - fromMs).toBeGreaterThan(HUNG_UP_MS - 10_000);
        expect(await noted(platform, box, 'plain')).toBe('');
        away.say('\u0003');
        expect(await away.code).not.toBe(0);
      } finally {
        cable.close();
      }
    },
    HUNG_UP_MS + 150_000,
  );
});
