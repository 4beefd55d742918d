// Explains on stderr, while a long call runs, what the call waits for; the scheduler supplies the text.
import { sleep } from '#shared/backoff.ts';
import { TASK_STATUSES, isTerminalTask } from '#shared/domain/status.ts';
import type { Client } from '../client.ts';
import { counted } from '../format.ts';
import { waitSentence } from '../explained.ts';
import { listField, numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { oneDeployment } from './deployment-reference.ts';

const AFTER_MS = 2_000;
const EVERY_MS = 5_000;

/**
 * Runs until the signal: prints a line when the call has waited some
 * seconds, and another at each change. A failed look-up prints nothing.
 */
export async function sayWhatItWaitsFor(
  client: Client,
  reference: string,
  say: (line: string) => void,
  signal: AbortSignal,
  times: Times = TIMES,
): Promise<void> {
  await sayReasons(() => reason(client, reference), say, signal, times);
}

interface Times {
  readonly afterMs: number;
  readonly everyMs: number;
}

const TIMES: Times = { afterMs: AFTER_MS, everyMs: EVERY_MS };

/** As `sayWhatItWaitsFor`, of any reason. An empty one is not printed. */
export async function sayReasons(
  reasonNow: () => Promise<string>,
  say: (line: string) => void,
  signal: AbortSignal,
  times: Times = TIMES,
): Promise<void> {
  let said = '';
  let waitMs = times.afterMs;
  while (await sleep(waitMs, signal)) {
    waitMs = times.everyMs;
    const text = await reasonNow().catch(() => '');
    if (signal.aborted || text === '' || text === said) continue;
    said = text;
    say(`waiting: ${text}`);
  }
}

/** As `explained` of a task; of the container that starts for its stub, where there is one: it says more. */
export async function explainedTask(client: Client, taskId: string, stubId: string): Promise<string> {
  const containers = listField(await client.gateway('GET', '/containers'), 'containers');
  const coming = containers.find(
    (one) => textField(one, 'stubId') === stubId && textField(one, 'status') === 'PENDING',
  );
  return explained(client, coming === undefined ? taskId : textField(coming, 'containerId'));
}

/** Why a task or container is as it is; empty for a task that has ended, since nothing waits for it any more. */
export async function explained(client: Client, id: string): Promise<string> {
  const found = await client.rest(`/explain/${await client.workspaceId()}/${encodeURIComponent(id)}`);
  const isOver = textField(found, 'kind') === 'task' && ENDS.has(textField(found, 'state'));
  return isOver ? '' : waitSentence(found);
}

const ENDS: ReadonlySet<string> = new Set(TASK_STATUSES.filter(isTerminalTask));

/** The reason from a container that is starting, if there is one: it says more than the deployment. */
async function reason(client: Client, reference: string): Promise<string> {
  const { id } = await oneDeployment(client, reference);
  const path = `/explain/${await client.workspaceId()}`;
  const deployment = await client.rest(`${path}/${encodeURIComponent(id)}`);
  const scaling = (deployment['scaling'] ?? {}) as JsonObject;
  const coming = listField(scaling, 'containers').find((one) => COMING.has(textField(one, 'state')));
  if (coming === undefined) return callsOf(deployment, scaling) || waitSentence(deployment);
  return waitSentence(await client.rest(`${path}/${encodeURIComponent(textField(coming, 'container_id'))}`));
}

/**
 * Tells of a deployment with all its containers how many calls run and wait for their turn.
 * Empty: none runs, or not all are there.
 */
function callsOf(deployment: JsonObject, scaling: JsonObject): string {
  const [running, waiting, ready] = ['running', 'waiting', 'ready'].map((name) => numberField(scaling, name));
  if (!SERVING.has(textField(deployment, 'state')) || !running || !ready) return '';
  const inAll = `in ${counted(ready, 'container')}, of ${numberField(scaling, 'max_containers')} at most (\`max_containers\`)`;
  if (!waiting) return `its handler runs: ${counted(running, 'call')} ${inAll}`;
  return `${counted(waiting, 'call')} ${waiting === 1 ? 'waits' : 'wait'} for a free place: ${counted(running, 'call')} ${running === 1 ? 'runs' : 'run'} ${inAll}`;
}

/** States in which all wanted containers are ready. */
const SERVING: ReadonlySet<string> = new Set(['HEALTHY', 'BUSY']);
const COMING: ReadonlySet<string> = new Set(['PENDING', 'ASSIGNED', 'STARTING']);
