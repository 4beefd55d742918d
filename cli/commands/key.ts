// `longshore key`: the keys that sign tokens; for the installation's administrator.
import { ageOf } from '../format.ts';
import { listField, numberField, textField } from '../json.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { onlyAdmin } from './workspace.ts';

export async function runKeyList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await client.rest('/signing-key').catch(onlyAdmin);
    const nowMs = Date.now();
    showList(invocation, listField(answer, 'data'), ['ID', 'STATE', 'ACTIVE TOKENS', 'MADE'], (key) => [
      textField(key, 'id'),
      key['signs'] === true ? 'signs' : textField(key, 'retired_at') === '' ? 'believed' : 'retired',
      String(numberField(key, 'active_tokens')),
      `${ageOf(textField(key, 'created_at'), nowMs)} ago`,
    ]);
  });
}

export async function runKeyRotate(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const key = await client.restCall('POST', '/signing-key').catch(onlyAdmin);
    showDone(invocation, key, [
      `key ${textField(key, 'id')} signs from now on; tokens that older keys signed stay good until \`longshore key retire\``,
    ]);
  });
}

export async function runKeyRetire(id: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const key = await client.restCall('DELETE', `/signing-key/${encodeURIComponent(id)}`).catch(onlyAdmin);
    showDone(invocation, key, [
      `key ${id} is retired: ${numberField(key, 'active_tokens')} tokens that it signed are refused from now on`,
    ]);
  });
}
