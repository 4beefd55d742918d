// Claims under the kill rounds: another workspace, to which GPUs are guaranteed, asks for containers and lets them go.
// The load holds those GPUs with interruptible containers, so that these end for the other one again and again.
import { sleep } from '#shared/backoff.ts';
import { Client } from '#cli/client.ts';
import { causes } from '../program.ts';
import { deploySoakApp, uploadApp } from '../soak/apps.ts';
import { Caller, objectOf, textOf } from '../soak/caller.ts';
import type { Ledger } from '../soak/ledger.ts';
import type { Workplace } from '../workplace.ts';
import type { Churn } from './churn.ts';

/** Settings of the scheduler with which containers end soon, and short tasks are interrupted. */
export const CLAIM_SETTINGS = {
  LONGSHORE_RECLAIM_AFTER: '0',
  LONGSHORE_RECLAIM_NOTICE: '1',
  LONGSHORE_RECLAIM_MIN_RUN: '0',
  LONGSHORE_RESTART_GRACE_SECONDS: '1',
};

const GUARANTEED = 3;
/** Claims are made again soon, and stay long enough that containers end for them. */
const PAUSE_MS = { least: 500, most: 1_500 };
const HOLD_MS = { least: 3_000, most: 6_000 };
const MOST_REQUESTS = 2;

/** @param client - of an administrator @param directory - an app with the handler `compute` */
export async function deployClaims(
  client: Client,
  ledger: Ledger,
  directory: string,
  place: Pick<Workplace, 'later'>,
): Promise<Churn> {
  const { url } = client.context;
  const made = await asked(client, 'POST', '/api/v1/workspace', { name: 'claims' });
  const workspaceId = textOf(made, 'id');
  await asked(client, 'PUT', `/api/v1/workspace/${workspaceId}/share`, { guaranteed: { H100: GUARANTEED } });
  const claimant = new Client({ url, token: textOf(made, 'token'), workspaceId });
  place.later(() => claimant.close());
  const caller = new Caller(claimant.context, MOST_REQUESTS);
  place.later(() => caller.close());
  const { deploymentId } = await deploySoakApp(caller, await uploadApp(claimant, directory), {
    name: 'claims',
    handler: 'compute',
    cpu: 100,
    gpu: 'H100',
    gpuCount: 1,
    keepWarmSeconds: 0,
    autoscaler: { type: 'queue_depth', minContainers: 0, maxContainers: GUARANTEED },
  });
  const scale = async (containers: number): Promise<void> => {
    await caller.gateway(`/deployments/${deploymentId}/scale`, { body: { containers } });
  };
  return {
    run: async (signal) => {
      let containers = 0;
      const pauseMs = ({ least, most }: typeof PAUSE_MS): number => least + Math.random() * (most - least);
      while (await sleep(pauseMs(containers === 0 ? PAUSE_MS : HOLD_MS), signal)) {
        containers = containers === 0 ? 1 + Math.floor(Math.random() * GUARANTEED) : 0;
        try {
          await scale(containers);
          ledger.count('claims: scale');
        } catch (error) {
          // The scheduler may be dead, and the next order is another one.
          ledger.count(`claims: ${causes(error).includes('was not answered') ? 'not answered' : 'refused'}`);
        }
      }
    },
    stop: async () => {
      await caller.gateway(`/deployments/${deploymentId}/stop`, { body: {} });
    },
  };
}

async function asked(
  client: Client,
  method: 'POST' | 'PUT',
  path: string,
  body: object,
): Promise<Readonly<Record<string, unknown>> | undefined> {
  const answer = await client.call(path, { method, body: JSON.stringify(body), contentType: 'application/json' });
  return objectOf(answer.body.toString());
}
