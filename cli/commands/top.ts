// `longshore top`: machines, queues and containers, again and again. Without a terminal, and with --once or --json, it
// prints them once.
import { sleep } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import type { Client } from '../client.ts';
import { TokenKindError } from '../errors.ts';
import { listField, numberField, objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { isTerminal, paintCell, print, printJson, withoutControls } from '../print.ts';
import { openScreen } from '../screen.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { isWaiting, snapshotOf, topLines } from './top-view.ts';
import type { Snapshot } from './top-view.ts';

const EVERY_MS = 2_000;
/** Open tasks that are counted; the largest list that the scheduler gives. */
const MOST_TASKS = 1_000;
/** Deployments with waiting tasks that are asked for their bound. */
const MOST_EXPLAINED = 8;

export interface TopFlags {
  readonly once?: boolean;
}

export async function runTop({ once }: TopFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    if (invocation.options.json === true) printJson(await look(client));
    else if (once === true || !isTerminal()) for (const line of lines(await look(client), {})) print(line);
    else await live(client);
  });
}

const lines = (
  snapshot: Snapshot,
  { columns = Number.POSITIVE_INFINITY, rows }: { readonly columns?: number; readonly rows?: number },
): readonly string[] =>
  topLines(snapshot, { columns, paint: paintCell, ...(rows === undefined ? {} : { rows }) }, Date.now());

async function live(client: Client): Promise<void> {
  // The first look is before the terminal is taken: a refusal is an ordinary error.
  let snapshot = await look(client);
  let trouble = '';
  const draw = (): void => {
    const { columns, rows } = screen.size();
    const room = trouble === '' ? rows : rows - 2;
    screen.draw([...lines(snapshot, { columns, rows: room }), ...(trouble === '' ? [] : ['', trouble])]);
  };
  const screen = openScreen(draw);
  try {
    for (;;) {
      draw();
      if (!(await sleep(EVERY_MS, screen.signal))) return;
      try {
        snapshot = await look(client);
        trouble = '';
      } catch (error) {
        trouble = withoutControls(`not of this moment: ${messageOf(error)}`);
      }
    }
  } finally {
    screen.close();
  }
}

async function look(client: Client): Promise<Snapshot> {
  const open = JSON.stringify({ status: ['PENDING', 'RUNNING', 'RETRY'] });
  const query = new URLSearchParams({ limit: String(MOST_TASKS), filters: open });
  const list = async (path: string, field: string): Promise<readonly JsonObject[]> =>
    listField(await client.gateway('GET', path), field);
  const [machines, deployments, containers, tasks] = await Promise.all([
    list('/machines', 'machines').catch((error: unknown) => {
      if (error instanceof TokenKindError) return null;
      throw error;
    }),
    list('/deployments?limit=1000', 'deployments'),
    list('/containers', 'containers'),
    list(`/tasks?${query.toString()}`, 'tasks'),
  ]);
  const bounds = await boundsOf(client, deployments, tasks);
  return snapshotOf(client.context.url, { machines, deployments, containers, tasks, bounds }, MOST_TASKS);
}

/** The settings at which tasks of deployments wait, by stub. */
async function boundsOf(
  client: Client,
  deployments: readonly JsonObject[],
  tasks: readonly JsonObject[],
): Promise<ReadonlyMap<string, string>> {
  const waiting = new Set(tasks.filter(isWaiting).map((task) => textField(task, 'stubId')));
  const asked = deployments.filter((one) => waiting.has(textField(one, 'stubId'))).slice(0, MOST_EXPLAINED);
  if (asked.length === 0) return new Map();
  const path = `/explain/${await client.workspaceId()}`;
  const found = asked.map(async (deployment): Promise<readonly [string, string]> => {
    const stubId = textField(deployment, 'stubId');
    const explained = await client.rest(`${path}/${textField(deployment, 'id')}`).catch(() => ({}));
    const scaling = objectField(explained, 'scaling');
    const bound = textField(scaling, 'bound');
    return [stubId, bound === '' ? '' : `${bound} ${numberField(scaling, bound)}`];
  });
  return new Map(await Promise.all(found));
}
