/**
 * `npm run build`: a self-contained release in `dist/`: the folder `dist/longshore`, its archive with a sha256, and the
 * channel file by which a scheduler serves it; and the packages of the command line and of the Python module in
 * `dist/install`. `-- --unpacked` leaves the archive out, `-- --packages` makes the packages alone.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { writePackages } from './build/packages.mjs';
import { packRelease, writeRelease } from './build/release.mjs';
import { main, stepLog } from './setup/log.mjs';
import { repositoryRoot } from './setup/paths.mjs';

await main(async () => {
  const log = stepLog();
  const dist = join(repositoryRoot, 'dist');
  const directory = join(dist, 'longshore');
  await mkdir(dist, { recursive: true });
  const packages = await log.step('building the packages', () => writePackages(dist));
  log.say(`dist/install: ${packages.join(', ')}`);
  if (process.argv.includes('--packages')) return;
  await log.step('bundling the programs', () => writeRelease(directory));
  if (process.argv.includes('--unpacked')) return;
  const { file, sha256, bytes } = await log.step('packing the release', () => packRelease(directory, dist));
  log.say(`dist/${file}: ${(bytes / 1e6).toFixed(1)} MB, sha256 ${sha256}`);
});
