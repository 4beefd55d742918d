// `longshore volume cp`: files and folders into a volume, or out of it. A source folder's entries come into the target
// itself, whether it is there or not: the same command, run again, goes on where it was.
import { lstatSync, statSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import type { Client } from '../client.ts';
import { CliError, notFound, usageError } from '../errors.ts';
import { EXIT } from '../exit-codes.ts';
import type { VolumeCopyFlags } from '../flags.ts';
import { bytesOf, counted } from '../format.ts';
import { canShowProgress, note, printJson, print } from '../print.ts';
import { downloadFiles } from '../transfer/download.ts';
import type { RemoteFile } from '../transfer/download.ts';
import { localTree } from '../transfer/local-tree.ts';
import type { LocalFile } from '../transfer/local-tree.ts';
import { lastPart, printable, shownPlace, volumePlaceOf } from '../transfer/places.ts';
import type { VolumePlace } from '../transfer/places.ts';
import { Report } from '../transfer/report.ts';
import { uploadFiles } from '../transfer/upload.ts';
import { listFiles } from '../transfer/volume-files.ts';
import type { VolumeFile } from '../transfer/volume-files.ts';
import { named } from './volume.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';

/** Failures of single files that are shown. */
const MOST_SHOWN = 20;

export async function runVolumeCopy(
  paths: readonly string[],
  flags: VolumeCopyFlags,
  invocation: Invocation,
): Promise<void> {
  const sources = paths.slice(0, -1);
  const target = paths.at(-1);
  if (target === undefined || sources.length === 0)
    throw usageError('a copy takes a source and a target: longshore volume cp ./data models:data');
  const from = sources.map(volumePlaceOf);
  const to = volumePlaceOf(target);
  if (paths.includes('-'))
    throw usageError('a copy goes from file to file, and - is none: name a file (./- where that is its name)');
  const outOf = from.filter((place) => place !== undefined);
  if (to !== undefined && outOf.length > 0)
    throw usageError(
      'both sides are volumes: move files in a volume with `longshore volume mv`, or copy them out first',
    );
  if (to === undefined && outOf.length !== from.length)
    throw usageError('one side must be in a volume, written as VOLUME:PATH, and the other one on this machine');
  const isJson = invocation.options.json === true;
  const report = new Report(flags.quiet !== true && !isJson && canShowProgress());
  const stop = new AbortController();
  const onStop = (): void => stop.abort(new CliError(STOPPED, { exitCode: EXIT.interrupted }));
  process.once('SIGINT', onStop);
  process.once('SIGTERM', onStop);
  try {
    await withClient(invocation, async (client) => {
      const all = flags.all === true;
      if (to === undefined) await copyOut(client, outOf, target, { all, report, signal: stop.signal });
      else await copyIn(client, sources, to, { all, report, signal: stop.signal });
    });
  } finally {
    process.off('SIGINT', onStop);
    process.off('SIGTERM', onStop);
    report.end();
  }
  show(report, to === undefined ? printable(target) : shownPlace(to), isJson);
}

const STOPPED = 'stopped: the same command goes on where it was';

interface Copying {
  readonly all: boolean;
  readonly report: Report;
  readonly signal: AbortSignal;
}

async function copyIn(
  client: Client,
  sources: readonly string[],
  to: VolumePlace,
  { all, report, signal }: Copying,
): Promise<void> {
  const isFolder = to.isFolder || sources.length > 1 || (await isVolumeFolder(client, to));
  const files: LocalFile[] = [];
  const emptyFolders: string[] = [];
  const single = sources.length === 1 && !isFolder && !isLocalFolder(sources[0] ?? '');
  const [folder, name] = single ? split(to.path) : [to.path, ''];
  for (const source of sources) {
    const isInner = sources.length > 1 && isLocalFolder(source);
    const tree = localTree(source, single ? name : isInner ? basename(resolve(source)) : '');
    files.push(...tree.files);
    emptyFolders.push(...tree.emptyFolders);
    report.leftOut += tree.leftOut;
    for (const path of tree.unread) report.fail(path, 'it vanished, or its name is not UTF-8');
  }
  requireDistinct(files.map(({ path }) => path));
  await named(
    client,
    to.volume,
    uploadFiles(client, { volume: to.volume, folder, files, emptyFolders, all }, report, signal),
  );
}

const isLocalFolder = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;

async function isVolumeFolder(client: Client, { volume, path }: VolumePlace): Promise<boolean> {
  const listing = await named(client, volume, listFiles(client, volume, path, false));
  return listing?.kind === 'folder';
}

const split = (path: string): readonly [folder: string, name: string] => [
  path.slice(0, Math.max(0, path.lastIndexOf('/'))),
  lastPart(path),
];

/** Two sources of one name would take each other's place. */
function requireDistinct(paths: readonly string[]): void {
  const seen = new Set<string>();
  for (const path of paths) {
    if (seen.has(path)) throw usageError(`two sources have the name ${printable(path)}: copy them one by one`);
    seen.add(path);
  }
}

async function copyOut(
  client: Client,
  places: readonly VolumePlace[],
  target: string,
  { all, report, signal }: Copying,
): Promise<void> {
  const isFolder = target.endsWith('/') || places.length > 1 || isLocalFolder(target);
  const found = [];
  for (const place of places) {
    const listing = await named(client, place.volume, listFiles(client, place.volume, place.path, true));
    if (listing === undefined) throw notFound(`there is no ${shownPlace(place)}`);
    found.push({ place, listing });
  }
  const names = found.map(({ place, listing }) => (listing.kind === 'folder' ? place.path : lastPart(place.path)));
  if (places.length > 1) requireDistinct(names.map(lastPart));
  for (const { place, listing } of found) {
    const { volume, path } = place;
    if (listing.kind !== 'folder') {
      const [folder, name] = split(path);
      const at = isFolder ? join(target, name) : target;
      const files = listing.entries.flatMap((entry) => fileOf(entry, at, report));
      await downloadFiles(client, { volume, folder, files, folders: isFolder ? [target] : [], all }, report, signal);
      continue;
    }
    const base = places.length > 1 ? join(target, lastPart(path) || volume) : target;
    const folders = listing.entries.filter(({ kind, isAddressable }) => kind === 'folder' && isAddressable);
    const files = listing.entries.flatMap((entry) => fileOf(entry, localPath(base, entry.path), report));
    const made = [base, ...folders.map((one) => localPath(base, one.path))];
    await downloadFiles(client, { volume, folder: path, files, folders: made, all }, report, signal);
  }
}

/** A path below a folder of this machine. @throws CliError for a path that would lead out of it */
function localPath(base: string, path: string): string {
  const parts = path.split('/');
  if (parts.some((part) => part === '' || part === '.' || part === '..' || part.includes('\0')))
    throw new CliError(`the volume told a path that no file may have: ${printable(path)}`);
  return join(base, ...parts);
}

/** The file of an entry; other entries are counted, and left out. */
function fileOf(entry: VolumeFile, target: string, report: Report): readonly RemoteFile[] {
  const { path, kind, size, mtimeNs, isExecutable, isAddressable } = entry;
  if (!isAddressable) {
    report.fail(path, 'its name is not UTF-8, or its path is too long');
    return [];
  }
  if (kind === 'folder') return [];
  if (kind !== 'file') {
    report.leftOut += 1;
    return [];
  }
  if (lstatSync(target, { throwIfNoEntry: false })?.isDirectory() === true) {
    report.fail(path, `there is a folder at ${target}`);
    return [];
  }
  return [{ path, target, size, mtimeNs, isExecutable }];
}

/** @throws CliError when files could not be copied */
function show(report: Report, target: string, isJson: boolean): void {
  const { files, bytes, same, leftOut, failures, failed, seconds } = report;
  if (isJson) printJson({ files, bytes, same, left_out: leftOut, failures, failed, seconds });
  else {
    const already = same === 0 ? '' : `; ${counted(same, 'file')} ${same === 1 ? 'was' : 'were'} there already`;
    print(`copied ${counted(files, 'file')} (${bytesOf(bytes)}) to ${target} in ${seconds.toFixed(1)} s${already}`);
  }
  if (leftOut > 0) note(`left out ${leftOut === 1 ? 'a link or the like' : `${leftOut} links and the like`}`);
  if (failures === 0) return;
  for (const { path, message } of failed.slice(0, MOST_SHOWN)) note(`${printable(path)}: ${printable(message)}`);
  throw new CliError(`${counted(failures, 'file')} could not be copied: run the same command again for them alone`);
}
