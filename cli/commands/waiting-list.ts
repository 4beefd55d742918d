// `longshore waiting`: containers that wait for a machine, by deployment; why, what is kept for them, whether a pool
// grows. The administrator sees those of all workspaces.
import type { Client } from '../client.ts';
import { TokenKindError } from '../errors.ts';
import { ageOf, counted, memoryOf } from '../format.ts';
import { listField, numberField, objectField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note } from '../print.ts';
import { showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

const HEADINGS = ['WORKSPACE', 'NAME', 'WAIT', 'ASKS', 'OLDEST', 'GIVES UP', 'WHY'];

export async function runWaiting(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await client.rest('/waiting').catch((error: unknown) => ownWaiting(client, error));
    const groups = listField(answer, 'data');
    showList(invocation, groups, HEADINGS, rowOf);
    if (invocation.options.json === true) return;
    for (const group of groups) sayMore(group);
    const others = numberField(answer, 'groups') - groups.length;
    if (others > 0) note(`${counted(others, 'more group')} ${others === 1 ? 'waits' : 'wait'} less long`);
  });
}

async function ownWaiting(client: Client, error: unknown): Promise<JsonObject> {
  if (!(error instanceof TokenKindError)) throw error;
  return await client.rest(`/workspace/${await client.workspaceId()}/waiting`);
}

function rowOf(group: JsonObject): readonly string[] {
  return [
    textField(group, 'workspace_name') || textField(group, 'workspace_id'),
    textField(group, 'name') || '-',
    String(numberField(group, 'containers')),
    asksOf(objectField(group, 'asks')),
    ageOf(textField(group, 'oldest_at'), Date.now()),
    textField(group, 'gives_up_at').slice(11, 19),
    textField(group, 'text'),
  ];
}

function asksOf(asks: JsonObject): string {
  const models = textsField(asks, 'gpu').join('|');
  const gpus = models === '' ? [] : [`${numberField(asks, 'gpu_count')}×${models}`];
  const cpu = `${numberField(asks, 'cpu_millicores') / 1000} CPU`;
  return [...gpus, cpu, memoryOf(numberField(asks, 'memory_mib'))].join(' ');
}

function sayMore(group: JsonObject): void {
  const name = textField(group, 'name') || textField(group, 'oldest_id');
  const reservation = group['reservation'];
  const kept = reservation === null ? '' : textField(objectField(group, 'reservation'), 'text');
  const grows = listField(group, 'growth').map((pool) => textField(pool, 'text'));
  const step = textField(group, 'step');
  for (const text of [kept, ...grows, step === '' ? '' : `next: ${step}`]) if (text !== '') note(`${name}: ${text}`);
}
