// The signatures of a release, by a real key. Plain JavaScript is under test, so that the types are said here.
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { tempDirectory } from '../../helpers/services.ts';
import { signingKey } from '../../helpers/signing-key.ts';

const { packRelease } = (await import(join(import.meta.dirname, '../../../scripts/build/release.mjs'))) as {
  packRelease: (directory: string, into: string, options: object) => Promise<{ readonly file: string }>;
};

test('a key signs the archive and the channel, and a build without one leaves no signature of the build before', async () => {
  const made = tempDirectory('signed');
  onTestFinished(() => made.remove());
  const key = await signingKey(made.path, 'releases@longshore.example');
  onTestFinished(() => key.end());
  for (const [name, value] of Object.entries(key.env)) vi.stubEnv(name, value);
  onTestFinished(() => void vi.unstubAllEnvs());
  const [release, into] = [join(made.path, 'longshore'), join(made.path, 'dist')];
  for (const folder of [release, into]) mkdirSync(folder);
  writeFileSync(join(release, 'package.json'), JSON.stringify({ version: '9.1.0' }));
  const { file } = await packRelease(release, into, { level: 1, key: key.address });
  const signed = [file, 'stable.json'].map((name) => join(into, name));
  for (const path of signed) expect(await key.isGood(path), path).toBe(true);
  expect(JSON.parse(readFileSync(join(into, 'stable.json'), 'utf8'))).toMatchObject({
    [file.includes('arm64') ? 'linux-arm64' : 'linux-x64']: { file },
  });
  for (const path of signed) {
    appendFileSync(path, ' ');
    expect(await key.isGood(path), path).toBe(false);
  }
  await packRelease(release, into, { level: 1 });
  expect(signed.filter((path) => existsSync(`${path}.asc`))).toEqual([]);
  await expect(packRelease(release, into, { level: 1, key: 'nobody@longshore.example' })).rejects.toThrow('gpg');
});
