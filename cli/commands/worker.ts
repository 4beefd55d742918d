// `longshore worker`: what can run containers, and how much of it is free.
import { sleep } from '#shared/backoff.ts';
import { isRecord } from '#shared/json.ts';
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import type { DrainFlags } from '../flags.ts';
import { coresOf, gpusOf, memoryOf, withNotes } from '../format.ts';
import { listField, numberField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note } from '../print.ts';
import { noSuch } from './no-such.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { machineIdOf } from './whole-ids.ts';

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
} as const;

/** Cordons or uncordons; each may be said twice. */
export async function runWorkerVerb(verb: keyof typeof DONE, reference: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = await machineIdOf(client, reference);
    await client.gateway('POST', `/workers/${encodeURIComponent(id)}/${verb}`).catch(noWorker(client, id));
    showDone(invocation, { workerId: id, done: verb }, [DONE[verb](id)]);
  });
}

const noWorker =
  (client: Client, id: string) =>
  async (error: unknown): Promise<never> => {
    if (!(error instanceof CliError) || !error.message.startsWith('worker not found')) throw error;
    throw await noSuch(client, 'worker', id, error);
  };

const LOOK_EVERY_MS = 1000;

/** Drains, and with `--wait` shows how it goes until nothing is left. */
export async function runWorkerDrain(reference: string, flags: DrainFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = await machineIdOf(client, reference);
    const body = flags.deadline === undefined ? {} : { deadlineSeconds: flags.deadline };
    await client.gateway('POST', `/workers/${encodeURIComponent(id)}/drain`, body).catch(noWorker(client, id));
    let drain = await drainOf(client, id);
    if (drain === undefined && (await neverJoined(client, id)))
      throw new CliError(
        `machine ${id} never joined, so nothing runs there: \`longshore machine delete ${id}\` forgets it, \`longshore worker uncordon ${id}\` lets it take work once it joins`,
      );
    let said = '';
    while (flags.wait === true && drain !== undefined && numberField(drain, 'remaining') > 0) {
      const text = progressOf(drain);
      if (text !== said) note(text);
      said = text;
      await sleep(LOOK_EVERY_MS);
      drain = await drainOf(client, id);
    }
    if (flags.wait === true && drain === undefined)
      throw new CliError(`worker ${id} does not drain any more: it was uncordoned or deleted meanwhile`);
    const isOver = drain !== undefined && numberField(drain, 'remaining') === 0;
    showDone(invocation, { workerId: id, done: 'drain', drain: drain ?? null }, [
      isOver
        ? `worker ${id} is drained: nothing runs there (\`longshore worker uncordon ${id}\` gives it back)`
        : `worker ${id} takes nothing new, and its containers leave as their work ends: ${drain === undefined ? '' : progressOf(drain)} (\`longshore worker list\`, or --wait)`,
    ]);
  });
}

async function drainOf(client: Client, id: string): Promise<JsonObject | undefined> {
  const workers = listField(await client.gateway('GET', '/workers'), 'workers');
  const drain = workers.find((worker) => textField(worker, 'id') === id)?.['drain'];
  return isRecord(drain) ? drain : undefined;
}

/**
 * Whether a machine has a join token only: lists of workers lack it.
 * @internal exported for its test
 */
export async function neverJoined(client: Pick<Client, 'gateway'>, id: string): Promise<boolean> {
  const answer = await client.gateway('GET', `/machines?machineId=${encodeURIComponent(id)}`);
  return listField(answer, 'machines').some(
    (machine) => textField(machine, 'id') === id && textField(machine, 'status') === 'pending',
  );
}

const WHY: Readonly<Record<string, string>> = {
  tasks: 'end their tasks',
  replacement: 'wait for a replacement',
  made_by_hand: 'were made by hand and stay until the deadline',
  stopping: 'stop',
  machine_away: 'are on a machine that does not answer',
};

/** Most replacements that are described in a line. */
const MOST_DETAILS = 3;

/** `3 of 5 containers left: 2 wait for a replacement, 1 end their tasks; until 14:05` */
export function progressOf(drain: JsonObject): string {
  const counts = new Map<string, number>();
  const blocked = listField(drain, 'blockedBy');
  for (const one of blocked) counts.set(textField(one, 'why'), (counts.get(textField(one, 'why')) ?? 0) + 1);
  const why = [...counts].map(([name, count]) => `${count} ${WHY[name] ?? name}`).join(', ');
  const deadline = textField(drain, 'deadline');
  return [
    `${numberField(drain, 'remaining')} of ${numberField(drain, 'total')} containers left${why === '' ? '' : `: ${why}`}`,
    ...(deadline === '' ? [] : [`until ${new Date(deadline).toLocaleTimeString('en-GB')}`]),
    ...[...new Set(blocked.map((one) => textField(one, 'detail')))]
      .filter((text) => text !== '')
      .slice(0, MOST_DETAILS),
  ].join('; ');
}

/**
 * The status, with a cordon or a condition named beside it: the status
 * alone does not tell a cordoned worker from an absent machine.
 */
function statusOf(worker: JsonObject): string {
  const status = textField(worker, 'status');
  const { drain } = worker;
  const left = isRecord(drain) ? numberField(drain, 'remaining') : undefined;
  const draining = left === undefined ? ['cordoned'] : left === 0 ? ['drained'] : [`draining, ${left} left`];
  const isOut = worker['cordonRequested'] === true || left !== undefined;
  return withNotes(status, [...(isOut ? draining : []), ...textsField(worker, 'conditions')]);
}

function gpuShare(worker: JsonObject): string {
  const total = numberField(worker, 'totalGpuCount');
  return total === 0 ? '-' : `${numberField(worker, 'freeGpuCount')} of ${gpusOf(total, textField(worker, 'gpu'))}`;
}
