// Folders that come out of a container, as a tar. The container may be anybody's program, so the tar is unpacked in an
// empty folder, where none of its links leads to anything yet, and is moved to its place from there.
// Invariant: nothing is written outside the place, also through links that an earlier copy brought. Nothing of it runs
// with the rights of its owner, and nothing is a device.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, lstatSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Writable } from 'node:stream';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { CliError, errorCode } from '../errors.ts';

/** Rights and owners of the container mean nothing here. */
const UNPACK = ['--no-same-owner', '--no-same-permissions', '--strip-components=1', '-xf', '-'];
const FULL = 0o700;

/** Unpacks what is below the first name of a tar, and makes it a folder at this place, or adds it to the one there. */
export async function unpackFolder(body: Readable, place: string): Promise<void> {
  const there = lstatSync(place, { throwIfNoEntry: false });
  if (there?.isDirectory() === false) throw noFolder(place);
  const beside = there === undefined ? dirname(place) : place;
  mkdirSync(beside, { recursive: true });
  const apart = mkdtempSync(join(beside, '.longshore-'));
  const made = join(apart, 'folder');
  try {
    mkdirSync(made);
    const { child, ended } = runTar([...UNPACK, '-C', made], 'stdin');
    const stop = new AbortController();
    ended.catch(() => stop.abort());
    const written = pipeline(body, inputOf(child.stdin as Writable), { signal: stop.signal });
    // The end of the other is awaited, too: nothing is written into a folder that is being removed.
    const failed = (await Promise.allSettled([ended, written])).find(({ status }) => status === 'rejected');
    if (failed !== undefined) throw (failed as PromiseRejectedResult).reason;
    check(made, '');
    if (there === undefined) renameSync(made, place);
    else move(made, place);
  } finally {
    rmSync(apart, { recursive: true, force: true });
  }
}

/** Input of a program that may end before it was written to the end, as tar does: the rest is dropped. */
export function inputOf(stdin: Writable): Writable {
  stdin.on('error', () => undefined);
  return new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      if (stdin.destroyed) done();
      else stdin.write(chunk, () => done());
    },
    final: (done) => {
      if (stdin.destroyed) done();
      else stdin.end(() => done());
    },
  });
}

const noFolder = (path: string): CliError => new CliError(`${JSON.stringify(path)} is no folder here: remove it`);

/** Refuses what is no file, folder or link. Folders can be moved then. */
function check(folder: string, inside: string): void {
  chmodSync(folder, (lstatSync(folder).mode & 0o777) | FULL);
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    const found = lstatSync(path);
    if (found.isDirectory()) check(path, join(inside, name));
    else if (!found.isFile() && !found.isSymbolicLink())
      throw new CliError(`${JSON.stringify(join(inside, name))} in the container is no file: nothing was copied`);
  }
}

/** Moves everything below a folder to the same place below another. Follows no link below either. */
function move(from: string, to: string): void {
  for (const name of readdirSync(from)) {
    const [source, target] = [join(from, name), join(to, name)];
    const there = lstatSync(target, { throwIfNoEntry: false });
    const isFolder = lstatSync(source).isDirectory();
    if (there?.isDirectory() === true && isFolder) move(source, target);
    else if (there !== undefined && isFolder) throw noFolder(target);
    else if (there?.isDirectory() === true) throw new CliError(`${JSON.stringify(target)} is a folder here: remove it`);
    else renameSync(source, target);
  }
}

/** Runs the `tar` of this machine. @param pipe - its stream that is read or written here */
export function runTar(args: readonly string[], pipe: 'stdin' | 'stdout') {
  const child = spawn('tar', args, {
    stdio: pipe === 'stdin' ? ['pipe', 'inherit', 'inherit'] : ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'close').then(
    ([code]) => {
      if (code !== 0) throw new CliError(`tar ended with code ${String(code)}: not all was copied`);
    },
    (error: unknown) => {
      const why = errorCode(error) === 'ENOENT' ? 'there is no program tar here: install it' : String(error);
      throw new CliError(`cannot copy folders: ${why}`, { cause: error });
    },
  );
  return { child, ended };
}
