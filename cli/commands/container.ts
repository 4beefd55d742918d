// `longshore container`: containers that run, and those that ended.
import type { Explanation } from '#shared/api/explain.ts';
import type { Client } from '../client.ts';
import { CliError, notFound } from '../errors.ts';
import type { ContainerListFlags } from '../flags.ts';
import { ageOf, durationOf, gpuUseOf } from '../format.ts';
import { listField, numberField, objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { idMeant } from '../short-id.ts';
import { deploymentsOf, servedBy, shown } from './deployment-reference.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

/** The end of a container id, which `longshore logs` prints too; valid while only one id ends so. */
export const SHORT = /^[0-9a-f]{4,8}$/i;

/** A whole container id. */
export const CONTAINER = /^[a-z]+-[0-9a-f-]{36}-[0-9a-f]{8}$/i;

export async function runContainerList(flags: ContainerListFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    if (flags.ended === true) {
      await listEnded(client, flags.limit, invocation);
      return;
    }
    const [found, names] = await Promise.all([containersOf(client), deploymentNames(client)]);
    const containers = found.map((one) => ({
      ...one,
      deploymentName: names.get(textField(one, 'deploymentId')) ?? '',
    }));
    const nowMs = Date.now();
    showList(invocation, containers, ['ID', 'STATUS', 'DEPLOYMENT', 'MACHINE', 'AGE', 'GPU USE'], (container) => [
      textField(container, 'containerId'),
      textField(container, 'status'),
      servedBy(container, names),
      textField(container, 'machineId') || '-',
      ageOf(textField(container, 'startedAt') || textField(container, 'scheduledAt'), nowMs),
      gpuUseOf(objectField(objectField(container, 'usage'), 'gpu')),
    ]);
  });
}

/** Containers that ended, with why; those that were made last first. */
async function listEnded(client: Client, limit: number, invocation: Invocation): Promise<void> {
  const [found, names] = await Promise.all([
    client.rest(`/ended-container/${await client.workspaceId()}?limit=${limit}`),
    deploymentNames(client),
  ]);
  const nowMs = Date.now();
  showList(invocation, listField(found, 'data'), ['ID', 'DEPLOYMENT', 'ENDED', 'RAN', 'REASON', 'LAST LINE'], (one) => [
    textField(one, 'container_id'),
    names.get(textField(one, 'deployment_id')) ?? (textField(one, 'stub_name') || '-'),
    `${ageOf(textField(one, 'ended_at'), nowMs)} ago`,
    durationOf(textField(one, 'started_at'), textField(one, 'ended_at'), nowMs),
    reasonOf(one),
    (textField(one, 'message').trimEnd().split('\n').at(-1) ?? '').slice(0, MOST_LINE) || '-',
  ]);
}

/** Characters of a last line in a list. */
const MOST_LINE = 80;

const reasonOf = (one: JsonObject): string => {
  const code = one['exit_code'];
  return `${textField(one, 'reason') || '-'}${typeof code === 'number' ? ` (exit code ${code})` : ''}`;
};

export async function runContainerStop(reference: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = SHORT.test(reference) ? await fullId(client, reference) : reference;
    await client.gateway('POST', `/containers/${encodeURIComponent(id)}/stop`).catch((error: unknown) => {
      if (!(error instanceof CliError) || !error.message.startsWith('Container not found')) throw error;
      throw new CliError(`no container ${id} runs here: \`longshore container list\` shows them`, { cause: error });
    });
    showDone(invocation, { containerId: id, done: 'stopping' }, [`stopping ${id}: it has 30 s to end`]);
  });
}

export async function runContainerPreempt(
  reference: string,
  { endCalls }: { readonly endCalls?: boolean },
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = SHORT.test(reference) ? await fullId(client, reference) : reference;
    const body = { end_calls: endCalls === true };
    const answer = await client.restCall('POST', `/container/${encodeURIComponent(id)}/preempt`, body);
    const seconds = numberField(answer, 'notice_seconds');
    showDone(invocation, { containerId: id, done: 'leaving', noticeSeconds: seconds, endCalls: body.end_calls }, [
      `${id} takes no more tasks: those of queues have ${seconds} s, and run again elsewhere at no cost`,
      body.end_calls ? 'Then it is stopped, with its calls.' : 'It stops when its calls have ended.',
    ]);
  });
}

async function containersOf(client: Client): Promise<readonly JsonObject[]> {
  return listField(await client.gateway('GET', '/containers'), 'containers');
}

async function deploymentNames(client: Client): Promise<ReadonlyMap<string, string>> {
  const answer = await client.gateway('GET', '/deployments?limit=1000');
  return new Map(deploymentsOf(answer).map((deployment) => [deployment.id, shown(deployment)]));
}

/** A running container by its id, or by the end of it. @throws CliError when there is none, or several */
export async function placeOf(
  client: Client,
  reference: string,
): Promise<{ readonly id: string; readonly stubId: string }> {
  const id = SHORT.test(reference) ? await fullId(client, reference) : reference;
  const found = (await containersOf(client)).find((container) => textField(container, 'containerId') === id);
  if (found === undefined)
    throw (
      (await endedError(client, id)) ??
      notFound(`no container ${id} runs here: \`longshore container list\` shows them`)
    );
  return { id, stubId: textField(found, 'stubId') };
}

/** The running container whose id ends so. @throws CliError when there is none, or several */
export async function fullId(client: Client, end: string): Promise<string> {
  const found = await runningId(client, end);
  if (found !== undefined) return found;
  const ended = await endedError(client, end);
  if (ended !== undefined) throw ended;
  throw notFound(`no container's id ends in ${end}: \`longshore container list\` shows them`);
}

/** Says that the container has ended, and why; undefined: the workspace had none of that id. */
async function endedError(client: Client, reference: string): Promise<CliError | undefined> {
  const found = await client
    .workspaceId()
    .then((workspaceId) => client.rest(`/explain/${workspaceId}/${encodeURIComponent(reference)}`))
    .catch(() => undefined);
  const { kind, id, since, container } = (found ?? {}) as unknown as Partial<Explanation>;
  if (kind !== 'container' || id === undefined || !container || container.ended_at === null) return undefined;
  const { reason, exit_code, message } = container;
  const why = [...(reason === '' ? [] : [reason]), ...(exit_code === null ? [] : [`exit code ${exit_code}`])].join(
    ', ',
  );
  const last = message.trimEnd().split('\n').at(-1) ?? '';
  const ago = since === null || since === undefined ? '' : ` ${ageOf(since, Date.now())} ago`;
  const text = `container ${id} ended${ago}${why === '' ? '' : ` (${why})`}${last === '' ? '' : `: ${last}`}`;
  return notFound(`${text}; \`longshore logs --container ${id}\` has its output`);
}

/** As `fullId`, with undefined when no running container matches. @throws CliError when there are several */
export async function runningId(client: Client, end: string): Promise<string | undefined> {
  const ids = (await containersOf(client)).map((container) => textField(container, 'containerId'));
  return idMeant(end.toLowerCase(), ids, 'container');
}
