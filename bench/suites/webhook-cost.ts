// Processor time of a call at a scheduler that does not lead, with a webhook on every kind of event and without one.
// The leader sends the messages; a receiver in the run's own process takes them.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ControlPlane } from '../control-plane.ts';
import { load } from '../load.ts';
import type { Figures, Round } from '../measure.ts';
import { inTurn } from '../rounds.ts';
import type { SuiteContext } from './suite.ts';

const FULL_SECONDS = 4;
const QUICK_SECONDS = 2;
const WARM_UP_SECONDS = 1;
const CONNECTIONS = 16;
const APP = {
  concurrentRequests: 64,
  keepWarmSeconds: 3600,
  autoscaler: { type: 'queue_depth', tasksPerContainer: 1000, maxContainers: 1, minContainers: 0 },
} as const;

/** Rounds of `call`, in microseconds; the baseline has no webhook. */
export async function webhookCost(context: SuiteContext): Promise<readonly Round[]> {
  const { place } = context;
  const seconds = context.isQuick ? QUICK_SECONDS : FULL_SECONDS;
  const receiver = createServer((request, response) => {
    request.resume().on('end', () => response.end());
  }).listen(0, '127.0.0.1');
  await once(receiver, 'listening');
  place.later(async () => {
    receiver.closeAllConnections();
    receiver.close();
    await once(receiver, 'close');
  });
  const settings = { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1' };
  const leader = await ControlPlane.start(place, await context.postgres(), 'told', settings);
  const near = await leader.another('told-near');
  await near.machines(1);
  const [app] = await near.deploy(1, 'told', APP);
  if (app === undefined) throw new Error('nothing was deployed');
  await near.call(app);
  const { workspaceId } = leader.client.context;
  const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`;
  const made = await leader.client.restCall('POST', `/webhook/${workspaceId}`, { url, event_types: ['*'] });
  const isActive = (active: boolean): Promise<unknown> =>
    leader.client.restCall('PUT', `/webhook/${workspaceId}/${String(made['id'])}`, { active });

  const measured = async (active: boolean): Promise<Figures> => {
    place.signal.throwIfAborted();
    await isActive(active);
    await load(near.target(app), CONNECTIONS, { seconds: WARM_UP_SECONDS });
    const beforeMs = near.cpuMs();
    const { answered } = await load(near.target(app), CONNECTIONS, { seconds });
    return { call: ((near.cpuMs() - beforeMs) / answered) * 1000 };
  };
  return await context.runRounds(
    'events',
    inTurn(
      () => measured(false),
      () => measured(true),
    ),
  );
}
