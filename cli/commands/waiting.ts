// What a call that takes long waits for, said on stderr while it does: the scheduler explains it.
import { sleep } from '#shared/backoff.ts';
import type { Client } from '../client.ts';
import { listField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { oneDeployment } from './deployment-reference.ts';

const AFTER_MS = 5_000;
const EVERY_MS = 5_000;

/** Until the signal: a line when the call has waited for some seconds, and one for each change after that. What cannot be asked is not said. */
export async function sayWhatItWaitsFor(
  client: Client,
  reference: string,
  say: (line: string) => void,
  signal: AbortSignal,
  times: { readonly afterMs: number; readonly everyMs: number } = { afterMs: AFTER_MS, everyMs: EVERY_MS },
): Promise<void> {
  let said = '';
  let waitMs = times.afterMs;
  while (await sleep(waitMs, signal)) {
    waitMs = times.everyMs;
    const text = await reason(client, reference).catch(() => '');
    if (signal.aborted || text === '' || text === said) continue;
    said = text;
    say(`waiting: ${text}`);
  }
}

/** The deployment's containers that are on their way say more than the deployment. */
async function reason(client: Client, reference: string): Promise<string> {
  const { id } = await oneDeployment(client, reference);
  const path = `/explain/${await client.workspaceId()}`;
  const deployment = await client.rest(`${path}/${encodeURIComponent(id)}`);
  const scaling = (deployment['scaling'] ?? {}) as JsonObject;
  const coming = listField(scaling, 'containers').find((one) => COMING.has(textField(one, 'state')));
  if (coming === undefined) return sentence(deployment);
  return sentence(await client.rest(`${path}/${encodeURIComponent(textField(coming, 'container_id'))}`));
}

const COMING: ReadonlySet<string> = new Set(['PENDING', 'ASSIGNED', 'STARTING']);

function sentence(explained: JsonObject): string {
  const [detail] = textsField(explained, 'details');
  return `${textField(explained, 'summary')}${detail === undefined ? '' : `; ${detail}`}`;
}
