// `volumes`: copies into a volume and out of it, of one large file and of many small ones. The baseline is `cp -r`
// between two folders of the same disk. A large file has another beside it, `verified`, which is what a copy of ours
// gives: `cp`, then the sha256 of both files, and of a copy into the volume the flush to the disk. Our side is what
// `longshore volume cp` does, without the start of the program.
import { createHash, randomBytes } from 'node:crypto';
import { mkdirSync, openSync, closeSync, readSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { downloadFiles } from '#cli/transfer/download.ts';
import { localTree } from '#cli/transfer/local-tree.ts';
import { Report } from '#cli/transfer/report.ts';
import { uploadFiles } from '#cli/transfer/upload.ts';
import { listFiles } from '#cli/transfer/volume-files.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import type { Product } from '../product.ts';
import { inTurn } from '../rounds.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const MIB = 1024 * 1024;
const SIZES = { full: { largeBytes: 1024 * MIB }, quick: { largeBytes: 256 * MIB } } as const;
const SMALL = { files: 2_000, folders: 20, bytes: 4096 } as const;
const VOLUME = 'bench-copies';
const CASES = ['large', 'small'] as const;
const MEASURES = [
  'large up',
  'large down',
  'large up verified',
  'large down verified',
  'small up',
  'small down',
] as const;

export async function volumes(context: SuiteContext): Promise<SuiteResult> {
  const { place, slack } = context;
  const { largeBytes } = context.isQuick ? SIZES.quick : SIZES.full;
  const product = await context.product();
  const { client } = product;
  await client.restCall('POST', `/volume/${await client.workspaceId()}`, { name: VOLUME });
  const home = join(place.directory, 'copies');
  fill(home, largeBytes);
  const amount = { large: largeBytes / 1e6, small: SMALL.files };
  // The first copy starts the file server of the volume, which ends when nobody uses it for ten seconds.
  await copies(product, home, place.signal);
  const rounds = await context.runRounds(
    'volumes',
    inTurn(
      () => baseline(home, amount),
      () => ours(product, home, amount, place.signal),
    ),
  );
  rmSync(home, { recursive: true });
  return {
    measures: MEASURES.map((name) =>
      measureOf('volumes', name, name.startsWith('large') ? 'MB/s' : 'files/s', rounds, slack),
    ),
    rounds,
  };
}

function fill(home: string, largeBytes: number): void {
  for (let at = 0; at < SMALL.folders; at += 1) mkdirSync(join(home, 'small', String(at)), { recursive: true });
  for (let at = 0; at < SMALL.files; at += 1)
    writeFileSync(join(home, 'small', String(at % SMALL.folders), String(at)), randomBytes(SMALL.bytes));
  mkdirSync(join(home, 'large'));
  const fd = openSync(join(home, 'large', 'file'), 'w');
  for (let at = 0; at < largeBytes; at += MIB) writeSync(fd, randomBytes(MIB));
  closeSync(fd);
}

type Amount = Readonly<Record<(typeof CASES)[number], number>>;
type Seconds = Readonly<Record<(typeof MEASURES)[number], number>>;

const rates = (seconds: Seconds, amount: Amount): Figures =>
  Object.fromEntries(
    MEASURES.map((name) => [name, (name.startsWith('large') ? amount.large : amount.small) / seconds[name]]),
  );

async function baseline(home: string, amount: Amount): Promise<Figures> {
  const target = join(home, 'copied');
  const copy = (name: string): Promise<number> => secondsOf(() => execa('cp', ['-r', join(home, name), target]));
  const large = await copy('large');
  const flush = await secondsOf(() => execa('sync', [join(target, 'file')]));
  const hashes = await secondsOf(() => {
    if (sha256Of(join(home, 'large', 'file')) !== sha256Of(join(target, 'file'))) throw new Error('the copy differs');
  });
  rmSync(target, { recursive: true });
  const small = await copy('small');
  rmSync(target, { recursive: true });
  const seconds = {
    'large up': large,
    'large down': large,
    'large up verified': large + flush + hashes,
    'large down verified': large + hashes,
    'small up': small,
    'small down': small,
  };
  return rates(seconds, amount);
}

async function secondsOf(work: () => unknown): Promise<number> {
  const startedMs = performance.now();
  await work();
  return (performance.now() - startedMs) / 1000;
}

/** By the library that both ends of a copy use, which is several times as fast as `sha256sum`. */
function sha256Of(path: string): string {
  const digest = createHash('sha256');
  const room = Buffer.allocUnsafe(MIB);
  const fd = openSync(path, 'r');
  for (let count = readSync(fd, room); count > 0; count = readSync(fd, room)) digest.update(room.subarray(0, count));
  closeSync(fd);
  return digest.digest('hex');
}

async function ours(product: Product, home: string, amount: Amount, signal: AbortSignal): Promise<Figures> {
  return rates(await copies(product, home, signal), amount);
}

async function copies({ client }: Product, home: string, signal: AbortSignal): Promise<Seconds> {
  const seconds: Record<string, number> = {};
  for (const name of CASES) {
    const up = new Report(false);
    const { files, emptyFolders } = localTree(join(home, name), '');
    await uploadFiles(client, { volume: VOLUME, folder: name, files, emptyFolders, all: true }, up, signal);
    seconds[`${name} up`] = up.seconds;
    const target = join(home, 'copied');
    const down = new Report(false);
    const found = (await listFiles(client, VOLUME, name, true))?.entries ?? [];
    const wanted = found.filter(({ kind }) => kind === 'file');
    await downloadFiles(
      client,
      {
        volume: VOLUME,
        folder: name,
        files: wanted.map((file) => ({ ...file, target: join(target, file.path) })),
        folders: [target],
        all: true,
      },
      down,
      signal,
    );
    seconds[`${name} down`] = down.seconds;
    rmSync(target, { recursive: true });
    for (const { failures, files: copied } of [up, down]) {
      if (failures > 0 || copied !== files.length) throw new Error(`${copied} of ${files.length} files were copied`);
    }
  }
  for (const way of ['large up', 'large down'] as const) seconds[`${way} verified`] = seconds[way] ?? 0;
  return seconds as Seconds;
}
