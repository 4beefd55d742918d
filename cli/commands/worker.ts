// `longshore worker` and `longshore pool`: what can run containers, and how much of it is free.
import { CliError } from '../errors.ts';
import { coresOf, gpusOf, memoryOf } from '../format.ts';
import { listField, numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

export async function runWorkerList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await client.gateway('GET', '/workers');
    showList(
      invocation,
      listField(answer, 'workers'),
      ['ID', 'POOL', 'STATUS', 'CPU FREE', 'MEMORY FREE', 'GPU FREE', 'CONTAINERS'],
      (worker) => [
        textField(worker, 'id'),
        textField(worker, 'poolName'),
        statusOf(worker),
        `${coresOf(numberField(worker, 'freeCpu'))} of ${coresOf(numberField(worker, 'totalCpu'))}`,
        `${memoryOf(numberField(worker, 'freeMemory'))} of ${memoryOf(numberField(worker, 'totalMemory'))}`,
        gpuShare(worker),
        String(listField(worker, 'activeContainers').length),
      ],
    );
  });
}

const DONE = {
  cordon: (id: string) =>
    `worker ${id} takes nothing new; what runs there goes on (\`longshore worker uncordon ${id}\` undoes it)`,
  uncordon: (id: string) => `worker ${id} takes containers again`,
  drain: (id: string) =>
    `worker ${id} takes nothing new, and its containers leave as their work ends (\`longshore worker list\` shows how many are left)`,
} as const;

/** Cordons, uncordons or drains; each may be said twice. */
export async function runWorkerVerb(verb: keyof typeof DONE, id: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    await client.gateway('POST', `/workers/${encodeURIComponent(id)}/${verb}`).catch((error: unknown) => {
      if (!(error instanceof CliError) || !error.message.startsWith('worker not found')) throw error;
      throw new CliError(`there is no worker ${id}: \`longshore worker list\` shows them`, { cause: error });
    });
    showDone(invocation, { workerId: id, done: verb }, [DONE[verb](id)]);
  });
}

export async function runPoolList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await client.gateway('GET', '/pools');
    showList(
      invocation,
      listField(answer, 'pools'),
      ['NAME', 'STATUS', 'GPU', 'WORKERS', 'CPU FREE', 'MEMORY FREE', 'GPU FREE', 'CONTAINERS'],
      (pool) => {
        const state = stateOf(pool);
        const pending = numberField(state, 'pendingContainers');
        return [
          textField(pool, 'name'),
          textField(state, 'status') || '-',
          textField(pool, 'gpu') || '-',
          String(numberField(state, 'availableWorkers')),
          coresOf(numberField(state, 'freeCpu')),
          memoryOf(numberField(state, 'freeMemory')),
          String(numberField(state, 'freeGpu')),
          `${numberField(state, 'runningContainers')}${pending > 0 ? `, ${pending} pending` : ''}`,
        ];
      },
    );
  });
}

function stateOf(pool: JsonObject): JsonObject {
  const { state } = pool;
  return typeof state === 'object' && state !== null ? (state as JsonObject) : {};
}

/** A worker that an operator took out of service shows it: the status alone also means a machine that is away. */
function statusOf(worker: JsonObject): string {
  const status = textField(worker, 'status');
  return worker['cordonRequested'] === true ? `${status} (cordoned)` : status;
}

function gpuShare(worker: JsonObject): string {
  const total = numberField(worker, 'totalGpuCount');
  return total === 0 ? '-' : `${numberField(worker, 'freeGpuCount')} of ${gpusOf(total, textField(worker, 'gpu'))}`;
}
