// `longshore settings`: settings that the administrator changes while schedulers run.
import { listField, textField } from '../json.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { onlyAdmin } from './workspace.ts';

export async function runSettingsList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await client.rest('/setting').catch(onlyAdmin);
    showList(invocation, listField(answer, 'data'), ['NAME', 'VALUE', 'FROM', 'MEANS'], (setting) => [
      textField(setting, 'name'),
      textField(setting, 'value') || '-',
      sourceOf(textField(setting, 'source'), textField(setting, 'variable')),
      textField(setting, 'description'),
    ]);
  });
}

export async function runSettingsSet(name: string, value: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const path = `/setting/${encodeURIComponent(name)}`;
    const setting = await client.restCall('PUT', path, { value }).catch(onlyAdmin);
    showDone(invocation, setting, [`${name} is ${value || 'empty'} on ${whereOf(setting)}`]);
  });
}

export async function runSettingsReset(name: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const setting = await client.restCall('DELETE', `/setting/${encodeURIComponent(name)}`).catch(onlyAdmin);
    const now = textField(setting, 'value') || 'empty';
    const variable = textField(setting, 'variable');
    showDone(invocation, setting, [`${name} is ${now} again, as ${variable} says, on ${whereOf(setting)}`]);
  });
}

const whereOf = (setting: object): string =>
  'on_every_scheduler' in setting && setting.on_every_scheduler === false
    ? 'every scheduler within half a minute: one of them has not answered yet'
    : 'every scheduler from now on';

const sourceOf = (source: string, variable: string): string =>
  source === 'environment' ? variable : source === 'database' ? 'settings set' : source;
