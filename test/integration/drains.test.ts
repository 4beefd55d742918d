// Drains over the real link: what an agent reports of a replacement's start decides how long a container serves on.
import { expect } from 'vitest';
import { StartProgress } from '#scheduler/fleet/containers/start-progress.ts';
import { PROGRESS_WITHIN_MS } from '#scheduler/fleet/drain-plan.ts';
import { turnText } from '#shared/domain/pull-turns.ts';
import { aWorkers } from '../helpers/drains.ts';
import { waitFor } from '../helpers/services.ts';
import { seen, test as base } from './fleet-fixture.ts';
import { quiet } from './tasks-fixture.ts';

const ADMIN = { workspaceId: null };
const MINUTE = 60_000;

/** A container that `minContainers` needs serves on a machine that is to leave; another machine is there. */
const test = base.extend('drained', async ({ fleet, agents }) => {
  const [leaving, other] = [await agents.joined(), await agents.joined()];
  const [control, { stream: reports }] = [await leaving.connect(), await other.connect()];
  const target = await fleet.target();
  const entry = await fleet.assigned(target, leaving.machineId);
  control.stream.write({ status: { seq: 1, containers: [seen(entry, 'running')] } });
  await waitFor(() => entry.row.state === 'RUNNING', 'the container serves');
  const workers = aWorkers({
    ...fleet,
    slots: fleet.process.slots,
    log: quiet,
    demandOf: () => Promise.resolve({ wanted: 1, minContainers: 1 }),
  });
  return { leaving, other, reports, target, entry, workers };
});

test('a container that minContainers needs serves on while its replacement gets on, and says for what it waits', async ({
  fleet,
  drained,
}) => {
  const { leaving, other, reports, target, entry, workers } = drained;
  const progress = () =>
    workers.listWorkers(ADMIN).find(({ machineId }) => machineId === leaving.machineId)?.drain?.blockedBy[0];
  /** Another look at the drain, some time later. */
  const look = async (ms: number) => {
    fleet.clock.aheadMs += ms;
    await workers.drain(ADMIN, leaving.machineId, 60 * MINUTE);
    return entry.row.state;
  };
  expect(await look(0)).toBe('RUNNING');
  expect(progress()).toMatchObject({ why: 'replacement', detail: 'no replacement is on its way' });

  // 24 minutes of a pull that gets on, reported by the agent.
  const next = await fleet.assigned(target, other.machineId);
  for (let at = 1; at <= 6; at += 1) {
    const message = `pulling image a:1: ${at} of 9 layers`;
    reports.write({ status: { seq: at, containers: [seen(next, 'pulling', { message })] } });
    await waitFor(() => next.start?.text === message, 'the report is taken');
    expect(progress()).toMatchObject({
      detail: `replacement ${next.row.id} on machine ${other.machineId}: ${message}`,
    });
    expect(await look(4 * MINUTE)).toBe('RUNNING');
  }
  expect(progress()?.detail).toContain('6 of 9 layers, no progress for 240 s');

  // The program reads a model: nothing but its samples shows that.
  await fleet.containers.transition(next.row.id, 'ack');
  reports.write({ status: { seq: 7, containers: [seen(next, 'starting')] } });
  await waitFor(() => next.start?.phase === 'starting', 'the report is taken');
  const sample = (memoryBytes: number) =>
    reports.write({ samples: { sampledAtMs: 1, containers: [{ containerId: next.row.id, memoryBytes }] } });
  sample(64 * 1024 ** 2);
  await waitFor(() => (next.start?.loadedBytes ?? 0) > 0, 'the sample is taken');
  expect(await look(4 * MINUTE)).toBe('RUNNING');
  // So it is with a program that compiles.
  reports.write({
    samples: { sampledAtMs: 2, containers: [{ containerId: next.row.id, cpuMicroseconds: 31_000_000 }] },
  });
  await waitFor(() => (next.start?.cpuMicroseconds ?? 0) > 0, 'the sample is taken');
  expect(await look(4 * MINUTE)).toBe('RUNNING');
  sample(64 * 1024 ** 2 + 1000);
  expect(await look(PROGRESS_WITHIN_MS - 4 * MINUTE - 2_000)).toBe('RUNNING');
  expect(progress()?.detail).toMatch(/: starts, no progress for 29\d s$/);
  await look(3_000);
  expect(entry.row.state).not.toBe('RUNNING');
});

test('a replacement whose machine stands in line for an image is waited for, although its place stays', async ({
  fleet,
  drained,
}) => {
  const { leaving, other, reports, target, entry, workers } = drained;
  await workers.drain(ADMIN, leaving.machineId, 30 * MINUTE);
  const next = await fleet.assigned(target, other.machineId);
  const message = turnText('a:1', 40, 90);
  reports.write({ status: { seq: 1, containers: [seen(next, 'pulling', { message })] } });
  await waitFor(() => next.start?.text === message, 'the report is taken');
  for (const minutes of [12, 12]) {
    fleet.clock.aheadMs += minutes * MINUTE;
    await workers.drain(ADMIN, leaving.machineId, 30 * MINUTE);
    expect(entry.row.state).toBe('RUNNING');
  }
  fleet.clock.aheadMs += 6 * MINUTE;
  await workers.drain(ADMIN, leaving.machineId, 30 * MINUTE);
  expect(entry.row.state).not.toBe('RUNNING');
});

test('a replacement that failed is told, and the deadline ends the wait for one that gets on', async ({
  fleet,
  drained,
}) => {
  const { leaving, other, reports, target, entry, workers } = drained;
  const drain = () => workers.drain(ADMIN, leaving.machineId, 10 * MINUTE);
  await drain();
  const failed = await fleet.assigned(target, other.machineId);
  await fleet.containers.transition(failed.row.id, 'ack');
  const exited = seen(failed, 'exited', { reason: 'image_error', exitCode: 1 });
  reports.write({ status: { seq: 1, containers: [exited] } });
  await waitFor(() => failed.row.state === 'FAILED', 'the replacement has failed');
  const view = () => workers.listWorkers(ADMIN).find(({ machineId }) => machineId === leaving.machineId)?.drain;
  expect(view()?.blockedBy[0]?.detail).toBe(
    `no replacement is on its way; replacement ${failed.row.id} failed (image_error)`,
  );
  const next = await fleet.assigned(target, other.machineId);
  for (const at of [1, 2]) {
    fleet.clock.aheadMs += 4 * MINUTE;
    const message = `pulling image a:1: ${at} of 9 layers`;
    reports.write({ status: { seq: at, containers: [seen(next, 'pulling', { message })] } });
    await waitFor(() => next.start?.text === message, 'the report is taken');
    await drain();
    expect(entry.row.state).toBe('RUNNING');
  }
  fleet.clock.aheadMs += 2 * MINUTE;
  await drain();
  expect(entry.row.state).toBe('STOPPING');
});

test('replicas that a machine is not linked to hear how a start goes on', async ({ fleet, agents }) => {
  const agent = await agents.joined();
  await agent.connect();
  const entry = await fleet.assigned(await fleet.target(), agent.machineId);
  const told: unknown[] = [];
  let hear = (_message: unknown): void => undefined;
  const bus = {
    on: (_channel: string, handler: (message: unknown) => void) => void (hear = handler),
    publish: (_channel: string, message: unknown) => void told.push(message),
  };
  const progress = new StartProgress({ ...fleet, bus, channel: 'starts' });
  const report = (message: string) => progress.reported(entry, { phase: 'pulling', message });
  report('1 of 3');
  report('1 of 3');
  report('2 of 3');
  fleet.clock.aheadMs += 5_000;
  report('3 of 3');
  // A message is told every five seconds at most.
  const { id, epoch } = entry.row;
  expect(told).toEqual([
    [id, epoch, '1 of 3'],
    [id, epoch, '3 of 3'],
  ]);
  const before = entry.start?.atMs ?? 0;
  fleet.clock.aheadMs += 1_000;
  hear([id, epoch, 'done']);
  expect(entry.start).toMatchObject({ text: 'done' });
  expect(entry.start?.atMs).toBeGreaterThanOrEqual(before + 1_000);
  hear([id, epoch + 1, 'of another assignment']);
  expect(entry.start?.text).toBe('done');
});
