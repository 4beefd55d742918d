/** Orders that are lost with the process that sent them, and the report that takes one back. */
import type { MachineId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { Process } from '../integration/tasks-fixture.ts';
import { aTarget, MACHINE, PlayedLink } from '../integration/tasks-fixture.ts';
import { waitFor } from './programs.ts';
import { sent } from './submissions.ts';

/** The agent process that every {@link PlayedLink} speaks for. */
export const SAME_AGENT = 'agent-1';

type Start = (options?: object) => Promise<Process>;

const aTask = (): Target => ({ ...aTarget(), kind: 'taskqueue', sync: false });

/** A task whose order is lost: its lease is written, and its process dies. */
export async function lostOrder(start: Start, target = aTask(), machineId = MACHINE) {
  const before = await start();
  const link = new PlayedLink(machineId);
  link.mode = 'lose';
  before.container(target.queue, link);
  const submission = await before.submissions.submit(target, { input: '{"x":1}' });
  if (submission.kind !== 'accepted') throw new Error(`not accepted: ${submission.kind}`);
  const { taskId } = submission;
  await waitFor(() => link.runs > 0, 'the order went into the void');
  const lease = await waitFor(() => before.leases.read(taskId), 'its lease is written');
  await before.records.flush();
  await before.stop();
  return { taskId, target, lease, died: before.instance };
}

/**
 * Waits until `one` has taken back an order of another machine, which reports now.
 * An order whose machine reported before would have been taken back by then.
 */
export async function takesBackAnother(start: Start, one: Process, agentInstance = SAME_AGENT): Promise<void> {
  const machineId = newId<MachineId>();
  const { target } = await lostOrder(start, aTask(), machineId);
  const link = new PlayedLink(machineId);
  one.container(target.queue, link);
  await one.reports.machineReported(machineId, { agentInstance, sessionEpoch: 2, running: [] });
  await sent(link);
}
