// `longshore volume ls`, `size`, `rm` and `mv`: the entries of a volume.
import { shellWord } from '#shared/shell-word.ts';
import type { Client } from '../client.ts';
import { CliError, usageError } from '../errors.ts';
import type { VolumeEntryFlags } from '../flags.ts';
import { ageOf, bytesOf, counted } from '../format.ts';
import { listField, numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { pagesOf } from '../pages.ts';
import { note, print, printJson, printTable } from '../print.ts';
import {
  joinPath,
  lastPart,
  printable,
  requireVolumeOrPlace,
  requireVolumePlace,
  shownPlace,
} from '../transfer/places.ts';
import type { VolumePlace } from '../transfer/places.ts';
import { volumePath } from '../transfer/volume-files.ts';
import { showDone, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { named, removeAll } from './volume.ts';

const PAGE = 10_000;
/** A call works on a large folder for some seconds, and may wait for the volume's file server. */
const TIMEOUT_MS = 60_000;
const SUMS = ['bytes', 'disk_bytes', 'files', 'folders', 'others'] as const;

/** Lists a folder, page by page: a long listing begins to show at once. */
export async function runVolumeEntries(text: string, flags: VolumeEntryFlags, invocation: Invocation): Promise<void> {
  const place = requireVolumeOrPlace(text);
  await withClient(invocation, async (client) => {
    const all: JsonObject[] = [];
    let isFirst = true;
    const read = (cursor: string): Promise<JsonObject> => {
      const query = { path: place.path, recursive: String(flags.recursive === true), limit: String(PAGE), cursor };
      return at(place, client, 'GET', `/files?${new URLSearchParams(query).toString()}`);
    };
    for await (const page of pagesOf(`the files of ${shownPlace(place)}`, read)) {
      const entries = listField(page, 'data');
      if (invocation.options.json === true) all.push(...entries);
      else if (entries.length > 0 || (isFirst && textField(page, 'next') === '')) showEntries(entries, isFirst);
      isFirst = false;
    }
    if (invocation.options.json === true) printJson(all);
  });
}

function showEntries(entries: readonly JsonObject[], isFirst: boolean): void {
  const nowMs = Date.now();
  const rows = entries.map((entry) => [
    textField(entry, 'kind'),
    entry['kind'] === 'file' ? bytesOf(numberField(entry, 'size')) : '-',
    `${ageOf(textField(entry, 'modified_at'), nowMs)} ago`,
    printable(textField(entry, 'path')) + (entry['kind'] === 'folder' ? '/' : ''),
  ]);
  if (isFirst) printTable(['KIND', 'SIZE', 'CHANGED', 'PATH'], rows);
  else for (const row of rows) print(row.join('  '));
}

export async function runVolumeSize(text: string, invocation: Invocation): Promise<void> {
  const place = requireVolumeOrPlace(text);
  await withClient(invocation, async (client) => {
    const sums = Object.fromEntries(SUMS.map((name) => [name, 0])) as Record<(typeof SUMS)[number], number>;
    const read = (cursor: string): Promise<JsonObject> =>
      at(place, client, 'GET', `/size?${new URLSearchParams({ path: place.path, cursor }).toString()}`);
    for await (const page of pagesOf(`the files of ${shownPlace(place)}`, read))
      for (const name of SUMS) sums[name] += numberField(page, name);
    if (invocation.options.json === true) return printJson(sums);
    const { bytes, disk_bytes: disk, files, folders, others } = sums;
    const links = others === 0 ? '' : `, ${others} links and the like`;
    const inside = `${bytesOf(bytes)} in ${counted(files, 'file')}, ${counted(folders, 'folder')}${links}`;
    print(`${shownPlace(place)} has ${inside}; ${bytesOf(disk)} on the disk`);
  });
}

export async function runVolumeRemove(
  texts: readonly string[],
  flags: VolumeEntryFlags,
  invocation: Invocation,
): Promise<void> {
  const places = texts.map(requireVolumePlace);
  const recursive = flags.recursive === true;
  for (const place of places) {
    if (place.path === '' && !recursive)
      throw usageError(`${shownPlace(place)} is the whole volume: add --recursive to remove all of its files`);
  }
  await withClient(invocation, async (client) => {
    const done: { readonly place: string; readonly removed: number }[] = [];
    for (const place of places) {
      const query = new URLSearchParams({ path: place.path, recursive: String(recursive) });
      const remove = (): Promise<JsonObject> => at(place, client, 'DELETE', `/files?${query.toString()}`);
      done.push({ place: shownPlace(place), removed: await removeAll(remove) });
    }
    showDone(
      invocation,
      done,
      done.map(({ place, removed }) => `removed ${place}${removed > 1 ? ` (${removed} files and folders)` : ''}`),
    );
  });
}

export async function runVolumeMove(
  fromText: string,
  toText: string,
  flags: VolumeEntryFlags,
  invocation: Invocation,
): Promise<void> {
  const from = requireVolumePlace(fromText);
  const target = requireVolumePlace(toText);
  if (from.volume !== target.volume)
    throw usageError(`${shownPlace(from)} and ${shownPlace(target)} are different volumes: copy out of the first one`);
  if (from.path === '') throw usageError('the root of a volume cannot be moved');
  const to = target.isFolder ? { ...target, path: joinPath(target.path, lastPart(from.path)) } : target;
  await withClient(invocation, async (client) => {
    const body = { from: from.path, to: to.path, replace: flags.replace === true };
    const moved = await at(from, client, 'POST', '/files/move', body).catch((error: unknown) => {
      if (!(error instanceof CliError) || error.answerCode !== 'volume_file_exists') throw error;
      note('into a folder: end the target with a slash; over a file: --replace');
      throw error;
    });
    showDone(invocation, moved, [`moved ${shownPlace(from)} to ${shownPlace(to)}`]);
  });
}

/** Calls a route below a volume, and says what a refusal is about. */
async function at(
  place: VolumePlace,
  client: Client,
  method: 'GET' | 'POST' | 'DELETE',
  route: string,
  body?: JsonObject,
): Promise<JsonObject> {
  const path = `${await volumePath(client, place.volume)}${route}`;
  return named(client, place.volume, client.restCall(method, path, body, TIMEOUT_MS)).catch((error: unknown) => {
    const code = error instanceof CliError ? error.answerCode : '';
    const shown = shownPlace(place);
    if (code === 'volume_file_not_found') {
      const text = `there is no ${shown}: \`longshore volume ls ${shellWord(`${place.volume}:`)}\` shows what is`;
      throw new CliError(text, { cause: error });
    }
    if (code === 'volume_folder_not_empty') {
      throw new CliError(`${shown} is not empty: add --recursive to remove it with all in it`, { cause: error });
    }
    throw error;
  });
}
