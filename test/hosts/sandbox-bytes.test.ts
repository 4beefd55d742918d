// 100 MiB through a program of a sandbox, in and out, by the command line. Command, scheduler, agent and supervisor
// hold none of it: their memory does not depend on how much passes.
import { createHash } from 'node:crypto';
import { createReadStream, openSync, closeSync, statSync, writeFileSync, appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { ContainerCommand } from '../helpers/container-command.ts';
import { platformAsUnits } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { peakDuring, residentMib } from '../helpers/resident.ts';
import { makeSandbox, nothingLeft, runIn, sandboxStub, stopSandbox, supervisorPid } from '../helpers/sandboxes.ts';
import { docker, test as base, waitFor } from '../helpers/services.ts';

const MIB = 1024 * 1024;
const [SMALL_MIB, LARGE_MIB] = [8, 100];
/** Most that a process may have more, at its peak, for the large file than for the small one. */
const MOST_GROWN_MIB = 64;

const test = base.extend('platform', { scope: 'file' }, async ({ postgres }, { onCleanup }): Promise<Platform> => {
  const platform = platformAsUnits(await docker(), postgres.url);
  onCleanup(() => platform.stop());
  await platform.start();
  return platform;
});

async function hashOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const piece of createReadStream(path)) hash.update(piece as Buffer);
  return hash.digest('hex');
}

test(`exec of cat passes ${LARGE_MIB} MiB both ways within fixed memory, also to a slow reader`, async ({
  platform,
}) => {
  const box = await makeSandbox(platform, await sandboxStub(platform, { cpu: 1000 }));
  await runIn(platform, box, 'true');
  const fileOf = (mebibytes: number): string => {
    const path = join(platform.directory, `in-${mebibytes}`);
    writeFileSync(path, '');
    for (let n = 0; n < mebibytes; n += 1)
      appendFileSync(path, Buffer.alloc(MIB, createHash('sha256').update(String(n)).digest()));
    return path;
  };
  const supervisor = await supervisorPid(platform, box);

  /** `longshore container exec BOX -- cat < in > out`. @returns the most memory of each process */
  const passes = async (mebibytes: number) => {
    const [from, to] = [fileOf(mebibytes), join(platform.directory, 'out')];
    const files = [openSync(from, 'r'), openSync(to, 'w')] as const;
    const command = new ContainerCommand(platform, ['exec', box, '--', 'sh', '-c', 'cat; sleep 3'], { files });
    const pids = {
      command: await command.pid(),
      scheduler: platform.scheduler.pid ?? 0,
      agent: platform.agent.pid ?? 0,
      supervisor,
    };
    const peak = await peakDuring(pids, async () => {
      // The memory is gone with the command, which ends a moment later.
      await waitFor(() => statSync(to).size === mebibytes * MIB, 'all is there', 120_000);
    });
    expect([await command.code, command.err]).toEqual([0, '']);
    for (const file of files) closeSync(file);
    expect(await hashOf(to)).toBe(await hashOf(from));
    return peak;
  };

  /** As much comes out while nobody reads for a while. */
  const waits = async (mebibytes: number) => {
    const zeros = ['exec', box, '--', 'sh', '-c', `head -c ${mebibytes * MIB} /dev/zero; echo over >&2`];
    const command = new ContainerCommand(platform, zeros);
    command.child.stdout?.pause();
    const pids = {
      command: await command.pid(),
      scheduler: platform.scheduler.pid ?? 0,
      agent: platform.agent.pid ?? 0,
      supervisor,
    };
    const peak = await peakDuring(pids, () => new Promise((resolve) => setTimeout(resolve, 5_000)));
    expect(command.err).toBe('');
    command.child.stdout?.resume();
    expect(await command.code).toBe(0);
    expect(command.bytes.length).toBe(mebibytes * MIB);
    return peak;
  };

  const idle = residentMib({ scheduler: platform.scheduler.pid ?? 0, agent: platform.agent.pid ?? 0, supervisor });
  await passes(SMALL_MIB);
  const [small, large, slow] = [await passes(SMALL_MIB), await passes(LARGE_MIB), await waits(LARGE_MIB)];
  const said = (['command', 'scheduler', 'agent', 'supervisor'] as const).map((name) => {
    const [least, most, last] = [small, large, slow].map((peak) => Math.round(peak[name]));
    return { name, least, most, last };
  });
  process.stderr.write(`idle ${JSON.stringify(idle)}; ${JSON.stringify(said)}\n`);
  for (const { name, least = NaN, most = NaN, last = NaN } of said)
    expect(Math.max(most, last) - least, name).toBeLessThan(MOST_GROWN_MIB);
  expect(await stopSandbox(platform, box)).toBe(true);
  await nothingLeft(platform, [box]);
}, 300_000);
