// A round of a build that is cut off: a part of the installation, or the step itself, is killed at a given moment.
// Afterwards nothing is left of the build, and the same build can be begun again.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { test as base, expect } from 'vitest';
import { Builder } from './builder.ts';
import type { Definition } from './builder.ts';
import { PackageIndex } from './package-index.ts';
import { Platform, jsonOf } from './platform.ts';
import { docker, waitFor } from './services.ts';

/** Has a platform whose builds find their packages at a stand-in of the index. */
export const test = base.extend('builder', { scope: 'file' }, async ({}, { onCleanup }): Promise<Builder> => {
  const index = await PackageIndex.start();
  const platform = new Platform(await docker(), (daemon) => (daemon === 'agent' ? index.settings : {}));
  onCleanup(async () => {
    index.stop();
    await platform.stop();
  });
  await platform.start();
  return new Builder(platform);
});

/** The build takes about this long on an idle machine. */
export const BUILD_MS = 8000;

export const VICTIMS = ['agent', 'scheduler', 'step'] as const;
export type Victim = (typeof VICTIMS)[number];

/** A build of some seconds with a step of each kind: of the engine's builder, and of the agent. */
function aDefinition(): Definition {
  const mark = randomUUID();
  return {
    pythonVersion: 'micromamba3.11',
    buildSteps: [
      { type: 'shell', command: `echo ${mark} > /mark; sleep 1` },
      { type: 'micromamba', command: `slow-${mark}` },
      { type: 'shell', command: 'sleep 1; cat /mark' },
    ],
  };
}

/** Everything of the machine's builds that the engine runs or keeps as a container. */
async function containersOf({ platform }: Builder): Promise<readonly string[]> {
  const machineId = platform.machineId() ?? '';
  const all = await platform.engine.client.listContainers({ all: true });
  return all
    .filter(
      ({ Labels, Names }) =>
        Labels['io.longshore.machine'] === machineId ||
        Labels['io.longshore.build'] === machineId ||
        Names.some((name) => name.startsWith(`/ls-step-${machineId}-`)),
    )
    .map(({ Names, Command }) => `${Names.join()} ${Command}`);
}

async function kill({ platform }: Builder, victim: Victim): Promise<void> {
  if (victim === 'agent') {
    await platform.agent.kill();
    await platform.agent.start();
  } else if (victim === 'scheduler') {
    await platform.scheduler.kill();
    await platform.startScheduler();
  } else {
    const { client } = platform.engine;
    const machineId = platform.machineId() ?? '';
    for (const { Id, Labels } of await client.listContainers())
      if (Labels['io.longshore.build'] === machineId)
        await client
          .getContainer(Id)
          .kill()
          .catch(() => undefined);
  }
}

/** @param delayMs - from the begin of the build to the kill */
export async function buildKillRound(builder: Builder, victim: Victim, delayMs: number): Promise<void> {
  const what = `${victim} after ${Math.round(delayMs)} ms`;
  const definition = aDefinition();
  const first = builder.run(definition).catch((error: unknown) => error);
  await sleep(delayMs);
  await kill(builder, victim);
  await first;
  const { platform } = builder;
  const again = await waitFor(
    async () => {
      const { last } = await builder.build(definition).catch(() => ({ last: undefined }));
      // The scheduler or the machine comes back first; a build of the dead scheduler is free after 30 s.
      const isAway = last === undefined || /can build images now|cut off|did not answer/.test(last.msg);
      return isAway ? undefined : last;
    },
    `the build can be begun again: ${what}`,
    120_000,
  );
  expect(again, what).toMatchObject({ success: true, msg: '' });
  await waitFor(async () => (await containersOf(builder)).length === 0, `no container is left: ${what}`, 60_000);
  const answer = await platform.call(`/api/v1/image/${platform.workspaceId}`);
  const rows = jsonOf<{ data: readonly { state: string }[] }>(answer).data;
  expect(
    rows.filter(({ state }) => state === 'BUILDING'),
    what,
  ).toEqual([]);
}
