// Whether an agent knows that it does not see the kernel's log. The journal's program is a stand-in on the PATH.
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test as base } from 'vitest';
import { createLog } from '#shared/log.ts';
import type { KernelLogState } from '#agent/devices/kernel-log.ts';
import { followKernelLog } from '#agent/devices/kernel-log.ts';

interface Ground {
  readonly directory: string;
  /** Replaces `journalctl`. @param once - the script of a call without --follow */
  readonly journal: (follow: string, once: string) => void;
  readonly states: KernelLogState[];
  readonly lines: string[];
  readonly start: (kmsg?: string) => void;
}

const entry = (number: number, atMs: number): string =>
  `echo '{"__CURSOR":"c${number}","__MONOTONIC_TIMESTAMP":"${atMs * 1000}","MESSAGE":"NVRM: Xid ${number}"}'`;

// oxlint-disable-next-line no-empty-pattern -- vitest reads a fixture's needs from the pattern
const test = base.extend('ground', async ({}, { onCleanup }): Promise<Ground> => {
  const directory = mkdtempSync(join(tmpdir(), 'ls-kernel-log-'));
  const path = process.env['PATH'];
  process.env['PATH'] = `${directory}:${path}`;
  const abort = new AbortController();
  let following: Promise<void> | undefined;
  onCleanup(async () => {
    abort.abort();
    await following;
    process.env['PATH'] = path;
    rmSync(directory, { recursive: true });
  });
  const states: KernelLogState[] = [];
  const lines: string[] = [];
  return {
    directory,
    states,
    lines,
    journal: (follow, once) => {
      const file = join(directory, 'journalctl');
      writeFileSync(file, `#!/bin/sh\ncase "$*" in *--follow*) ${follow} ;; *) ${once} ;; esac\n`);
      chmodSync(file, 0o755);
    },
    start: (kmsg = join(directory, 'absent')) => {
      const reader = {
        cursor: undefined,
        sinceMs: 0,
        onLine: ({ text }: { readonly text: string }) => void lines.push(text),
        onState: (state: KernelLogState) => void states.push(state),
        looks: { firstMs: 50, everyMs: 50 },
      };
      following = followKernelLog(kmsg, reader, abort.signal, createLog({ name: 'test', level: 'silent' }));
    },
  };
});

const told = (ground: Ground, problem: RegExp) =>
  expect.poll(() => ground.states.at(-1)?.problem, { timeout: 10_000 }).toMatch(problem);

for (const [name, follow, once, problem] of [
  [
    'always fails',
    'echo "no rights here" >&2; exit 1',
    'exit 1',
    /^journalctl ends with 1 .*: no rights here$|no line of the kernel: no rights/,
  ],
  [
    'ends well and prints nothing',
    'exit 0',
    'exit 0',
    /^journalctl ends with 0 and prints no line$|no line of the kernel/,
  ],
  [
    'prints nothing for ever, because it may not read',
    'exec sleep 600',
    'echo "No journal files were opened due to insufficient permissions." >&2; exit 1',
    /^the journal shows no line of the kernel: No journal files were opened/,
  ],
  [
    'prints nothing for ever, and has no line of the kernel',
    'exec sleep 600',
    'exit 0',
    /shows no line of the kernel$/,
  ],
  ['does not follow what it has', `${entry(1, 1000)}; exec sleep 600`, entry(2, 900_000), /stands still/],
] as const)
  test(`a journal that ${name} is told`, async ({ ground }) => {
    ground.journal(follow, once);
    ground.start();
    await told(ground, problem);
    expect(ground.states.at(-1)?.source).toBe('none');
  });

test('a journal that is not installed is told, and read once it is there', async ({ ground }) => {
  const path = process.env['PATH'];
  process.env['PATH'] = ground.directory;
  ground.start();
  await told(ground, /^neither \/dev\/kmsg nor the journal can be read: .*ENOENT/);
  process.env['PATH'] = path;
  ground.journal(`${entry(3, 1000)}; exec sleep 600`, entry(3, 1000));
  await told(ground, /^$/);
  expect(ground.lines).toEqual(['NVRM: Xid 3']);
});

test('a journal that is read says nothing else, however long nothing new comes', async ({ ground }) => {
  ground.journal(`${entry(1, 1000)}; exec sleep 600`, `${entry(1, 1000)}; echo x >> ${ground.directory}/looks`);
  ground.start();
  const looks = join(ground.directory, 'looks');
  await expect.poll(() => existsSync(looks) && readFileSync(looks, 'utf8').length > 4).toBe(true);
  expect(ground.states).toEqual([{ source: 'journal', problem: '' }]);
});

test('a file like /dev/kmsg that is read needs no journal', async ({ ground }) => {
  const kmsg = join(ground.directory, 'kmsg');
  writeFileSync(kmsg, '4,1,1000,-;NVRM: Xid 9\n');
  ground.start(kmsg);
  await told(ground, /^$/);
  expect(ground.states).toEqual([{ source: 'kmsg', problem: '' }]);
});
