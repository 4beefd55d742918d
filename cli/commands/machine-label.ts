// `longshore machine label`: labels by which apps choose machines.
import { labelsText } from '#shared/domain/labels.ts';
import { CliError } from '../errors.ts';
import { listField, objectField } from '../json.ts';
import { noSuch } from './no-such.ts';
import { showDone, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { machineIdOf } from './whole-ids.ts';

export async function runMachineLabel(
  reference: string,
  words: readonly string[],
  removed: readonly string[],
  invocation: Invocation,
): Promise<void> {
  const { set, remove } = readWords(words, removed);
  await withClient(invocation, async (client) => {
    const id = await machineIdOf(client, reference);
    const path = `/machines/${encodeURIComponent(id)}/labels`;
    const isChange = Object.keys(set).length + remove.length > 0;
    const answer = isChange
      ? await client.gateway('POST', path, { set, remove })
      : listField(await client.gateway('GET', `/machines?machineId=${encodeURIComponent(id)}`), 'machines')[0];
    if (answer === undefined) throw await noSuch(client, 'machine', id);
    const labels = objectField(answer, 'labels') as Record<string, string>;
    const text = labelsText(labels);
    showDone(invocation, { machineId: id, labels }, [`machine ${id} has ${text === '' ? 'no label' : text}`]);
  });
}

/** `zone=a` sets, `zone-` removes. */
function readWords(words: readonly string[], removed: readonly string[]) {
  const set: Record<string, string> = {};
  const remove = [...removed];
  for (const word of words) {
    const cut = word.indexOf('=');
    if (cut > 0) set[word.slice(0, cut)] = word.slice(cut + 1);
    else if (word.endsWith('-') && word.length > 1) remove.push(word.slice(0, -1));
    else
      throw new CliError(`${JSON.stringify(word)} is neither zone=a, which sets a label, nor zone-, which removes it`);
  }
  return { set, remove };
}
