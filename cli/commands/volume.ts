// `longshore volume`: directories of the workspace that outlive containers. Their files: volume-entries.ts and
// volume-copy.ts.
import { shellWord } from '#shared/shell-word.ts';
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import { EXIT } from '../exit-codes.ts';
import type { VolumeCreateFlags, VolumeDeleteFlags } from '../flags.ts';
import { ageOf, bytesOf, counted } from '../format.ts';
import { listField, numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { canShowProgress, endProgress, print, printJson, progress } from '../print.ts';
import { allVolumes, volumePath, volumesPath } from '../transfer/volume-files.ts';
import { confirmDeletion } from '../typed.ts';
import { noSuch } from './no-such.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

/** A deletion works on a volume for some seconds at a time; the call may wait for the volume's file server, too. */
const REMOVE_TIMEOUT_MS = 60_000;

export async function runVolumeCreate(name: string, flags: VolumeCreateFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const volume = await client.restCall('POST', await volumesPath(client), {
      name,
      ...(flags.driver === undefined ? {} : { driver: flags.driver }),
      ...(flags.machine === undefined ? {} : { machine_id: flags.machine }),
    });
    showDone(invocation, volume, [`made volume ${name}`]);
  });
}

export async function runVolumeList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const nowMs = Date.now();
    showList(invocation, await allVolumes(client), ['NAME', 'DRIVER', 'MACHINE', 'CREATED'], (volume) => [
      textField(volume, 'name'),
      textField(volume, 'driver'),
      textField(volume, 'machine_id') || '-',
      `${ageOf(textField(volume, 'created_at'), nowMs)} ago`,
    ]);
  });
}

export async function runVolumeShow(name: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const volume = await named(client, name, client.rest(await volumePath(client, name)));
    if (invocation.options.json === true) return printJson(volume);
    const users = listField(volume, 'deployments').map(
      (one) => `${textField(one, 'name')}/v${numberField(one, 'version')}${one['active'] === true ? '' : ' (stopped)'}`,
    );
    print(`name         ${textField(volume, 'name')}`);
    print(`id           ${textField(volume, 'id')}`);
    print(`driver       ${textField(volume, 'driver')}`);
    print(`machine      ${textField(volume, 'machine_id') || '-'}`);
    for (const copy of listField(volume, 'copies'))
      print(`copy         ${textField(copy, 'machine_id')}, ${bytesOf(numberField(copy, 'bytes'))}`);
    print(`created      ${ageOf(textField(volume, 'created_at'), Date.now())} ago`);
    print(`deployments  ${users.length === 0 ? '-' : users.join(', ')}`);
    print(`containers   ${numberField(volume, 'containers')}`);
  });
}

/** Deletes the volume. A large one takes several calls. */
export async function runVolumeDelete(name: string, { yes }: VolumeDeleteFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const path = await volumePath(client, name);
    if (yes !== true) await confirm(client, name, path);
    const remove = (): Promise<JsonObject> => client.restCall('DELETE', path, undefined, REMOVE_TIMEOUT_MS);
    const removed = await removeAll(() => named(client, name, remove()).catch(withStopCure));
    const entries = removed === 0 ? '' : removed === 1 ? ' with 1 entry' : ` with ${removed} entries`;
    showDone(invocation, { name, removed, done: 'deleted' }, [`deleted volume ${name}${entries}`]);
  });
}

/** Asks where the volume has something. It counts for one call: a large volume has at least so much. */
async function confirm(client: Client, name: string, path: string): Promise<void> {
  const asked = client.rest(`${path}/size?path=&cursor=`, REMOVE_TIMEOUT_MS);
  const size = await named(client, name, asked).catch((error: unknown) => {
    if (!(error instanceof CliError) || error.exitCode !== EXIT.failed) throw error;
    throw new CliError(`${error.message}; --yes deletes ${name} without a look at its files`, { cause: error });
  });
  const [files, folders, others] = ['files', 'folders', 'others'].map((field) => numberField(size, field));
  const isWhole = textField(size, 'next') === '';
  if (isWhole && files === 0 && folders === 0 && others === 0 && !process.stdin.isTTY) return;
  const inside = [
    ...(files === 0 && !isWhole ? [] : [`${counted(files ?? 0, 'file')} (${bytesOf(numberField(size, 'bytes'))})`]),
    ...(folders === 0 ? [] : [counted(folders ?? 0, 'folder')]),
    ...(others === 0 ? [] : [`${others} links and the like`]),
  ].join(', ');
  const what = inside === '' ? 'more than one call counts' : `${isWhole ? '' : 'at least '}${inside}`;
  await confirmDeletion(`volume ${name} has ${what}`, 'Delete it with all in it?');
}

/** Adds the commands that stop what uses the volume, which the sentence names. */
function withStopCure(error: unknown): never {
  if (!(error instanceof CliError) || error.answerCode !== 'volume_in_use') throw error;
  const users = /deployments mount it: ([^)]*)/.exec(error.message)?.[1];
  const cure =
    users === undefined
      ? '`longshore container list` shows the containers'
      : users
          .split(', ')
          .filter((name) => name !== '…')
          .map((name) => `\`longshore deployment stop ${shellWord(name)}\``)
          .join(', ');
  throw new CliError(`${error.message}: ${cure}`, { cause: error });
}

/** Asks until everything is gone, and shows how many went. @returns the number of entries that were removed */
export async function removeAll(remove: () => Promise<JsonObject>, what = 'files and folders'): Promise<number> {
  let removed = 0;
  let isShown = false;
  try {
    for (;;) {
      const answer = await remove();
      removed += numberField(answer, 'removed');
      if (answer['complete'] === true) return removed;
      isShown = canShowProgress();
      if (isShown) progress(`${removed} ${what} removed`);
    }
  } finally {
    if (isShown) endProgress();
  }
}

/** Says which volume a refusal is about. */
export function named<T>(client: Client, name: string, work: Promise<T>): Promise<T> {
  return work.catch(async (error: unknown) => {
    if (!(error instanceof CliError) || error.answerCode !== 'volume_not_found') throw error;
    throw await noSuch(client, 'volume', name, error);
  });
}
