// Starts and stops around the kills of an agent: deployments that nobody calls, whose
// containers come and go by order alone. Each asks for GPUs. Together with the load they
// ask for more GPUs than there are, so that a device given back is given out again at once.
import { sleep } from '#shared/backoff.ts';
import { causes } from '../program.ts';
import { deploySoakApp } from '../soak/apps.ts';
import type { AppFields, SoakApp } from '../soak/apps.ts';
import type { Caller } from '../soak/caller.ts';
import type { Ledger } from '../soak/ledger.ts';

/** Pause between two orders to a deployment. */
const PAUSE_MS = { least: 300, most: 1_500 };
const MOST_CONTAINERS = 2;

/** @param sinceMs - by `performance.now()` @returns whether the scheduler was away at some moment since then */
export type IsAway = (sinceMs: number) => boolean;

export interface Churn {
  /** Gives orders until the signal. */
  run(signal: AbortSignal): Promise<void>;
  /** Stops everything that it deployed. */
  stop(): Promise<void>;
}

/**
 * @param objectId - an archive with the handler
 * @param isAway - whether the scheduler was away at some moment since then, so that an order may fail
 */
export async function deployChurn(caller: Caller, ledger: Ledger, objectId: string, isAway: IsAway): Promise<Churn> {
  const deploy = (name: string, containers: number, fields: Partial<AppFields> = {}): Promise<SoakApp> =>
    deploySoakApp(caller, objectId, {
      name,
      handler: 'compute',
      cpu: 100,
      gpu: 'H100',
      gpuCount: 1,
      keepWarmSeconds: 0,
      autoscaler: { type: 'queue_depth', minContainers: containers, maxContainers: MOST_CONTAINERS },
      ...fields,
    });
  const order = async ({ deploymentId }: SoakApp, what: 'scale' | 'start' | 'stop', body: object): Promise<void> => {
    await caller.gateway(`/deployments/${deploymentId}/${what}`, { body });
    ledger.count(`churn: ${what}`);
  };
  // An order without an answer may have left a version that nobody knows here.
  const versionsOf = async (name: string): Promise<readonly string[]> => {
    const { deployments } = await caller.gateway('/deployments?limit=1000');
    const rows = deployments as readonly { readonly id: string; readonly name: string }[];
    return rows.filter((row) => row.name === name).map((row) => row.id);
  };
  const scaled = await deploy('churn-scaled', 0);
  const stopped = await deploy('churn-stopped', 1, { gpuCount: 2 });
  let released = await deploy('churn-released', 1);
  let isActive = true;
  const turns: readonly (() => Promise<void>)[] = [
    () => order(scaled, 'scale', { containers: Math.floor(Math.random() * (MOST_CONTAINERS + 1)) }),
    async () => {
      await order(stopped, isActive ? 'stop' : 'start', {});
      isActive = !isActive;
    },
    async () => {
      released = await deploy('churn-released', 1);
      ledger.count('churn: redeploy');
      for (const id of await versionsOf(released.name))
        if (id !== released.deploymentId) await caller.gateway(`/deployments/${id}`, { method: 'DELETE' });
    },
  ];
  const lane = async (turn: () => Promise<void>, signal: AbortSignal): Promise<void> => {
    while (await sleep(PAUSE_MS.least + Math.random() * (PAUSE_MS.most - PAUSE_MS.least), signal)) {
      const askedMs = performance.now();
      try {
        await turn();
      } catch (error) {
        if (isAway(askedMs)) ledger.count('churn: not answered');
        else ledger.fail(`churn: ${causes(error)}`);
      }
    }
  };
  return {
    run: async (signal) => {
      await Promise.all(turns.map((turn) => lane(turn, signal)));
    },
    stop: async () => {
      for (const app of [scaled, stopped, released]) await order(app, 'stop', {});
    },
  };
}
