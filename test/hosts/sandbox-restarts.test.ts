// kill -9 of the scheduler, of the agent and of both while programs run in a sandbox: by `longshore container exec`, by
// `longshore container shell` on a terminal, and by the operations over HTTP. The programs go on, the commands connect
// again, and all output up to the bound is there once.
import { createHash, randomBytes } from 'node:crypto';
import { closeSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { ContainerCommand } from '../helpers/container-command.ts';
import { test } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { makeSandbox, nothingLeft, runIn, sandboxStub, startIn, stopSandbox } from '../helpers/sandboxes.ts';
import { waitFor } from '../helpers/services.ts';

const LINES = 150;
const COUNTS = `i=0; while [ $i -lt ${LINES} ]; do i=$((i+1)); echo line $i; echo wrong $i >&2; sleep 0.1; done`;
const numbers = (text: string, word: string): number[] =>
  [...text.matchAll(new RegExp(`^${word} (\\d+)\\r?$`, 'gm'))].map(([, number]) => Number(number));
const ALL = Array.from({ length: LINES }, (_, at) => at + 1);
/** Tells the hash of its input, and on stderr how much has come. */
const HASHES = `
import hashlib, os, sys
seen, total = hashlib.sha256(), 0
for piece in iter(lambda: os.read(0, 1 << 16), b''):
    seen.update(piece)
    if total >> 23 < (total + len(piece)) >> 23:
        print('came', (total + len(piece)) >> 23, file=sys.stderr, flush=True)
    total += len(piece)
print(seen.hexdigest(), total)
`;
const LARGE = 900_000;
const MIB = 1024 * 1024;

const aBox = async (platform: Platform): Promise<string> => {
  const box = await makeSandbox(platform, await sandboxStub(platform, { cpu: 500 }));
  await platform.gateway(`/pods/${box}/connect`, {});
  return box;
};

/** Runs a command in the container, past scheduler and agent. */
async function byEngine(platform: Platform, box: string, command: string): Promise<void> {
  const found = (await platform.containers()).find(({ Labels }) => Labels['io.longshore.container'] === box);
  const exec = await platform.engine.client.getContainer(found?.Id ?? '').exec({ Cmd: ['sh', '-c', command] });
  await exec.start({ Detach: true });
  await waitFor(async () => !(await exec.inspect()).Running, `${command} has run`, 60_000);
}

const kills = {
  scheduler: ['scheduler'],
  agent: ['agent'],
  'scheduler and agent': ['scheduler', 'agent'],
} as const;

async function killed(platform: Platform, names: readonly ('scheduler' | 'agent')[], meanwhile: () => Promise<void>) {
  for (const name of names) await platform[name].kill();
  await meanwhile();
  if (names.some((name) => name === 'scheduler')) await platform.startScheduler();
  if (names.some((name) => name === 'agent')) await platform.agent.start();
}

describe.for(Object.entries(kills))('kill -9 of the %s', ([, names]) => {
  test('leaves programs running, and every line is shown once', async ({ platform }) => {
    const box = await aBox(platform);
    const exec = new ContainerCommand(platform, ['exec', box, '--', 'sh', '-c', `${COUNTS}; read code; exit $code`]);
    const shell = new ContainerCommand(platform, ['shell', box], { terminal: true });
    const pid = await startIn(platform, box, `${COUNTS}; exit 9`);
    shell.say(`PS1=; ${COUNTS}; read code; exit $code\n`);
    await Promise.all([exec.seen('line 10\n'), shell.seen('line 10\r\n')]);
    await killed(platform, names, async () => undefined);
    await Promise.all([exec.seen('connected again'), shell.seen('connected again')]);
    await Promise.all([exec.seen(`wrong ${LINES}\n`), shell.seen(`wrong ${LINES}\r\n`)]);
    exec.say('7\n');
    shell.say('8\n');
    expect(await Promise.all([exec.code, shell.code])).toEqual([7, 8]);
    expect(numbers(exec.out, 'line')).toEqual(ALL);
    expect(numbers(exec.err, 'wrong')).toEqual(ALL);
    for (const word of ['line', 'wrong']) expect(numbers(shell.out, word)).toEqual(ALL);
    expect(exec.err + shell.out).not.toContain('dropped');
    expect(shell.leftTerminalAsItWas).toBe(true);
    const state = await waitFor(
      async () => {
        const one = await platform.gateway<{ status: string; exitCode: number }>(`/pods/${box}/status?pid=${pid}`);
        return one.status === 'exited' && one;
      },
      'the program of the operations ends',
      60_000,
    );
    expect(state.exitCode).toBe(9);
    const { stdout = '' } = await platform.gateway(`/pods/${box}/stdout?pid=${pid}`);
    const { stderr = '' } = await platform.gateway(`/pods/${box}/stderr?pid=${pid}`);
    expect([numbers(stdout, 'line'), numbers(stderr, 'wrong')]).toEqual([ALL, ALL]);
    expect(await stopSandbox(platform, box)).toBe(true);
    await nothingLeft(platform, [box]);
  });

  test('input from a file that is passed on meanwhile reaches the program once', async ({ platform }) => {
    const box = await aBox(platform);
    const path = join(platform.directory, 'input');
    const bytes = randomBytes(64 * MIB);
    writeFileSync(path, bytes);
    const file = openSync(path, 'r');
    const written = join(platform.directory, 'output');
    const out = openSync(written, 'w');
    const command = ['exec', box, '--', 'python3', '-c', HASHES];
    const exec = new ContainerCommand(platform, command, { files: [file, out] });
    await exec.seen('came 1\n');
    await killed(platform, names, async () => undefined);
    expect(await exec.code, exec.err).toBe(0);
    expect(exec.err).toContain('connected again');
    expect(readFileSync(written, 'utf8').split(' ')[0]).toBe(createHash('sha256').update(bytes).digest('hex'));
    for (const one of [file, out]) closeSync(one);
    expect(await stopSandbox(platform, box)).toBe(true);
    await nothingLeft(platform, [box]);
  });

  test('what is printed meanwhile is there whole up to a mebibyte, and what was dropped beyond is told', async ({
    platform,
  }) => {
    const box = await aBox(platform);
    const prints = (bytes: number): readonly string[] => [
      'python3',
      '-c',
      `
import os, sys, time
print('begun', flush=True)
while not os.path.exists('/tmp/go'):
    time.sleep(0.05)
sys.stdout.write(''.join('%09d\\n' % n for n in range(${bytes} // 10)))
sys.stdout.flush()
open('/tmp/done-${bytes}', 'w').close()
sys.exit(6)`,
    ];
    const whole = new ContainerCommand(platform, ['exec', box, '--', ...prints(LARGE)]);
    const much = new ContainerCommand(platform, ['exec', box, '--', ...prints(3 * MIB)]);
    await Promise.all([whole.seen('begun'), much.seen('begun')]);
    await killed(platform, names, () =>
      byEngine(
        platform,
        box,
        `touch /tmp/go; for n in ${LARGE} ${3 * MIB}; do until [ -e /tmp/done-$n ]; do sleep 0.1; done; done`,
      ),
    );
    const codes = await Promise.all([whole.code, much.code]);
    expect(codes, whole.err + much.err).toEqual([6, 6]);
    const lines = (count: number): string =>
      Array.from({ length: count }, (_, n) => String(n).padStart(9, '0')).join('\n');
    expect(whole.out === `begun\n${lines(LARGE / 10)}\n`).toBe(true);
    const dropped = Number(/(\d+) bytes of stdout were dropped/.exec(much.err)?.[1]);
    const count = Math.floor((3 * MIB) / 10);
    const all = `begun\n${lines(count)}\n`;
    expect(dropped).toBeGreaterThan(0);
    expect(much.out.length + dropped).toBe(all.length);
    expect(much.out.length).toBeGreaterThanOrEqual(MIB);
    expect(all.endsWith(much.out.slice('begun\n'.length))).toBe(true);
    expect(await runIn(platform, box, 'echo well')).toMatchObject({ stdout: 'well\n' });
    expect(await stopSandbox(platform, box)).toBe(true);
    await nothingLeft(platform, [box]);
  });
});
