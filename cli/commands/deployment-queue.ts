// `longshore deployment queue`: the queue of a deployment, with the keys of its flow control.
import { counted } from '../format.ts';
import type { JsonObject } from '../json.ts';
import { listField, numberField, textField } from '../json.ts';
import { note } from '../print.ts';
import { shown, shownDeployment } from './deployment-reference.ts';
import { showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

export async function runQueueShow(
  reference: string,
  { limit }: { readonly limit: number },
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const deployment = await shownDeployment(client, reference);
    const answer = await client.rest(
      `/deployment/${await client.workspaceId()}/flow/${deployment.id}?limit=${String(limit)}`,
    );
    const most = numberField(answer, 'concurrency');
    showList(invocation, listField(answer, 'data'), ['KEY', 'RUNNING', 'MOST', 'WAITING'], (row) => [
      textField(row, 'key') || '(none)',
      String(numberField(row, 'running')),
      most === 0 ? '-' : String(most),
      String(numberField(row, 'waiting')),
    ]);
    if (invocation.options.json === true) return;
    for (const line of [...statesOf(answer), ...settingsOf(answer)]) note(`${shown(deployment)}: ${line}`);
  });
}

/** State of the queue now. */
function statesOf(answer: JsonObject): readonly string[] {
  const of = (name: string): number => numberField(answer, name);
  const limit = of('limit');
  const delayed = of('delayed');
  const held = of('held');
  return [
    ...(answer['paused'] === true ? ['paused: nothing of its queue begins'] : []),
    ...(limit > 0 ? [`at most ${counted(limit, 'task')} of its queue run at a time`] : []),
    `${counted(of('running'), 'task')} run, ${of('waiting')} wait for a container`,
    ...(delayed > 0 ? [`${counted(delayed, 'task')} wait for a turn, for further calls or for a retry`] : []),
    ...(held > 0 ? [`${counted(held, 'task')} wait for others`] : []),
  ];
}

/** The settings of its flow control. */
function settingsOf(answer: JsonObject): readonly string[] {
  const text = (name: string): string => textField(answer, name);
  const debounce = numberField(answer, 'debounce');
  return [
    ...listField(answer, 'limits').map(
      (one) =>
        `limit ${textField(one, 'name')}: ${numberField(one, 'running')} of ${numberField(one, 'most')} run, ${numberField(one, 'waiting')} wait`,
    ),
    ...(text('throttle') === '' ? [] : [`tasks of a key start at ${text('throttle')} at most`]),
    ...(text('rate') === '' ? [] : [`calls of a key are taken at ${text('rate')} at most`]),
    ...(debounce > 0 ? [`calls of a key are gathered until none came for ${debounce} s`] : []),
    ...(text('singleton') === '' ? [] : [`a key has one open task (${text('singleton')})`]),
    ...(text('fair_key') === '' ? [] : [`tasks take turns by ${text('fair_key')}`]),
    ...(typeof answer['priority'] === 'number' ? ['tasks have priorities'] : []),
  ];
}

/** Changes the queue of a name, all its versions. @param says - what is so then */
export async function runQueueChange(
  reference: string,
  change: { readonly paused?: boolean; readonly limit?: number },
  says: string,
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const deployment = await shownDeployment(client, reference);
    await client.restCall('PATCH', `/deployment/${await client.workspaceId()}/flow/${deployment.id}`, change);
    note(`${deployment.name}: ${says}`);
  });
}
