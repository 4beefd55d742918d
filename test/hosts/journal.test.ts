// The journal cut at every step: an agent is killed at each of its writes, one after the other, through a container's
// whole life. With any such state on disk, no task runs twice or is lost, and nothing is left.
import { watch } from 'node:fs';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { testOnHosts, whyNoHosts } from '../helpers/hosts.ts';
import type { Member } from '../helpers/hosts.ts';
import { waitFor } from '../helpers/services.ts';

const test = testOnHosts({ count: 1, settings: { LONGSHORE_RESTART_GRACE_SECONDS: '0' } });
/** More steps than a life has. */
const MOST_STEPS = 60;

/**
 * Kills the agent at the given change in the directory of its journal: a new file, its rename.
 * @returns `killed` tells whether that change came
 */
function killAt(member: Member, step: number): { readonly killed: () => boolean; readonly stop: () => void } {
  let seen = 0;
  let killed = false;
  const watcher = watch(join(member.host.directory, 'data', 'agent'), (_event, name) => {
    if (killed || name === null || !name.startsWith('journal.json')) return;
    seen += 1;
    if (seen < step) return;
    killed = true;
    if (member.agent.pid !== undefined) process.kill(member.agent.pid, 'SIGKILL');
  });
  return { killed: () => killed, stop: () => watcher.close() };
}

const journalOf = (member: Member): readonly { readonly stage: string }[] =>
  (
    JSON.parse(readFileSync(join(member.host.directory, 'data', 'agent', 'journal.json'), 'utf8')) as {
      entries: readonly { stage: string }[];
    }
  ).entries;

describe.skipIf(whyNoHosts !== undefined)('Agent crash or upgrade', () => {
  test('the journal cut at every step of a container’s life: its task ends, each container goes, none is left', async ({
    fleet,
  }) => {
    const [member] = fleet.members;
    if (member === undefined) throw new Error('there is no host');
    const deployment = await fleet.deploy({
      app: 'counted.py',
      handler: 'handler',
      name: 'cut',
      stubType: 'taskqueue/deployment',
      keepWarmSeconds: 0,
      retries: 5,
      autoscaler: { type: 'queue_depth', maxContainers: 1, tasksPerContainer: 1 },
    });
    let cuts = 0;
    for (let step = 1; step <= MOST_STEPS; step += 1) {
      const cut = killAt(member, step);
      const id = await fleet.put(deployment, { key: `cut-${step}`, seconds: 0 });
      const isOver = async (): Promise<boolean> =>
        (await fleet.task(id)).status === 'COMPLETE' &&
        (await fleet.containers(deployment)).length === 0 &&
        journalOf(member).every(({ stage }) => stage === 'gone');
      await waitFor(async () => cut.killed() || (await isOver()), `step ${step}, or the end of the life`, 60_000);
      cut.stop();
      if (!cut.killed()) break;
      cuts += 1;
      await waitFor(() => !member.agent.isRunning, 'the agent is dead');
      await member.agent.start();
      await waitFor(isOver, `the life that was cut at step ${step} is over`, 90_000);
    }
    // Accepted, created, started, running, exited, gone: each is written.
    expect(cuts).toBeGreaterThanOrEqual(6);
    expect(cuts).toBeLessThan(MOST_STEPS);
    expect(await member.host.docker.listVolumes().then(({ Volumes }) => Volumes ?? [])).toEqual([]);
  }, 600_000);
});
