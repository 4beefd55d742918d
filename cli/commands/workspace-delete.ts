// `longshore workspace delete`: an administrator removes a workspace with all that it owns.
import { CliError, usageError } from '../errors.ts';
import type { WorkspaceDeleteFlags } from '../flags.ts';
import { bytesOf, counted } from '../format.ts';
import { numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note } from '../print.ts';
import { programName } from '../program-name.ts';
import { ask } from '../typed.ts';
import { showDone, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { onlyAdmin } from './workspace.ts';
import { workspaceIdOf } from './workspace-reference.ts';

export async function runWorkspaceDelete(
  reference: string,
  flags: WorkspaceDeleteFlags,
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = encodeURIComponent(await workspaceIdOf(client, reference));
    const before = await client.rest(`/workspace/${id}/deletion`).catch(onlyAdmin);
    const name = textField(before, 'name') || reference;
    if (flags.dryRun === true) {
      showDone(invocation, before, [contentsText(name, before), ...stateLines(before)]);
      return;
    }
    const refusal = textField(before, 'refusal');
    if (refusal !== '') throw new CliError(refusal);
    if (textField(before, 'state') === 'present' && flags.yes !== true) await confirm(name, before);
    const begun = await client.restCall('DELETE', `/workspace/${id}`).catch(onlyAdmin);
    showDone(invocation, begun, [
      `workspace ${name} is being deleted: nobody comes in, and its data goes by itself`,
      `${programName(invocation.env)} workspace list shows it until it is gone`,
      ...(textField(begun, 'hold') === '' ? [] : stateLines(begun)),
    ]);
  });
}

async function confirm(name: string, before: JsonObject): Promise<void> {
  if (!process.stdin.isTTY) throw usageError('without a terminal, say --yes: nothing was deleted');
  note(contentsText(name, before));
  note('Audit lines and the ledger stay. Everything else cannot be brought back.');
  if ((await ask('type the name of the workspace to delete it: ')) !== name)
    throw new CliError('that is not its name: nothing was deleted');
}

/** Things that go, as a sentence. @internal exported for its test */
export function contentsText(name: string, from: JsonObject): string {
  const of = (field: string): number => numberField(from, field);
  const things = [
    counted(of('deployments'), 'deployment'),
    counted(of('containers'), 'container'),
    `${counted(of('volumes'), 'volume')} (${bytesOf(of('volume_bytes'))})`,
    `${counted(of('objects'), 'object')} (${bytesOf(of('object_bytes'))})`,
    counted(of('images'), 'image'),
    counted(of('secrets'), 'secret'),
    counted(of('models'), 'model'),
    counted(of('machines'), 'machine'),
  ];
  return `workspace ${name} has ${things.join(', ')}`;
}

/** How far a deletion is, and what keeps it. */
function stateLines(record: JsonObject): readonly string[] {
  const [refusal, hold] = [textField(record, 'refusal'), textField(record, 'hold')];
  if (refusal !== '') return [`it cannot be deleted now: ${refusal}`];
  if (textField(record, 'state') !== 'deleting') return [];
  return hold === '' ? ['it is being deleted'] : [`it is being deleted, and waits: ${hold}`];
}
