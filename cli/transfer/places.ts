// Places of a copy: `NAME:PATH` in a volume, or a path of this machine. Pure.
import { isVolumeName } from '#shared/domain/volume-drivers.ts';
import { folderPathProblem } from '#shared/domain/volume-file-paths.ts';
import { usageError } from '../errors.ts';

export interface VolumePlace {
  readonly volume: string;
  /** From the root of the volume, without slashes at its ends; empty: the root. */
  readonly path: string;
  /** The path was written as a folder: with a slash at its end, or as the root. */
  readonly isFolder: boolean;
}

/** @returns undefined: the text names a path of this machine @throws CliError for a path that no volume has */
export function volumePlaceOf(text: string): VolumePlace | undefined {
  const colon = text.indexOf(':');
  const volume = text.slice(0, Math.max(colon, 0));
  if (!isVolumeName(volume)) return undefined;
  const path = text.slice(colon + 1).replace(/^\/+|\/+$/g, '');
  const problem = folderPathProblem(path);
  if (problem !== undefined) throw usageError(`the path in ${printable(text)} ${problem}`);
  return { volume, path, isFolder: path === '' || text.endsWith('/') };
}

/** @throws CliError unless the text names a place in a volume */
export function requireVolumePlace(text: string): VolumePlace {
  const place = volumePlaceOf(text);
  if (place !== undefined) return place;
  const slash = text.indexOf('/');
  const meant = isVolumeName(text.slice(0, Math.max(slash, 0))) ? text.replace('/', ':') : undefined;
  const such = meant === undefined ? 'such as models:base/weights.bin' : `probably ${printable(meant)}`;
  throw usageError(`${printable(text)} must be VOLUME:PATH, ${such}`);
}

/** A place, or a volume by its name alone, which is all of it. @throws CliError for other texts */
export const requireVolumeOrPlace = (text: string): VolumePlace =>
  isVolumeName(text) ? { volume: text, path: '', isFolder: true } : requireVolumePlace(text);

export const joinPath = (folder: string, name: string): string => (folder === '' ? name : `${folder}/${name}`);
export const lastPart = (path: string): string => path.slice(path.lastIndexOf('/') + 1);
export const shownPlace = ({ volume, path }: Pick<VolumePlace, 'volume' | 'path'>): string =>
  printable(`${volume}:${path}`);

/** A name as one line of a terminal: containers may give files names with line ends and control sequences. */
export const printable = (text: string): string =>
  // oxlint-disable-next-line no-control-regex
  text.replaceAll(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g, (one) => {
    const code = one.codePointAt(0) ?? 0;
    return code < 256 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`;
  });
