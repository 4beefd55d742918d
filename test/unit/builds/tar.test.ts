// Tar files for the builder, read back by the machine's own tar.
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { tarOf } from '#agent/containers/tar.ts';

test('files, directories, links, modes and odd names arrive as they are', async () => {
  const root = mkdtempSync(join(tmpdir(), 'longshore-tar-'));
  try {
    const from = join(root, 'from');
    const to = join(root, 'to');
    const long = `${'d'.repeat(60)}/${'é'.repeat(60)}`;
    mkdirSync(join(from, 'd'.repeat(60)), { recursive: true });
    mkdirSync(to);
    writeFileSync(join(from, long), 'long name');
    writeFileSync(join(from, 'empty'), '');
    writeFileSync(join(from, 'block'), 'x'.repeat(1024));
    writeFileSync(join(from, 'run.sh'), '#!/bin/sh\n');
    chmodSync(join(from, 'run.sh'), 0o755);
    writeFileSync(join(from, 'Dockerfile'), 'the user’s own');
    symlinkSync('run.sh', join(from, 'link'));
    const tar = await buffer(tarOf([{ name: 'Dockerfile', text: 'FROM a\n' }], from));
    expect(tar.length % 512).toBe(0);
    execFileSync('tar', ['-x', '-C', to], { input: tar });
    expect(readFileSync(join(to, 'Dockerfile'), 'utf8')).toBe('FROM a\n');
    expect(readFileSync(join(to, long), 'utf8')).toBe('long name');
    expect(readFileSync(join(to, 'block'), 'utf8')).toHaveLength(1024);
    expect(statSync(join(to, 'empty')).size).toBe(0);
    expect(statSync(join(to, 'run.sh')).mode & 0o777).toBe(0o755);
    expect(readlinkSync(join(to, 'link'))).toBe('run.sh');
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});

test('without a directory there are only our own files', async () => {
  const tar = await buffer(tarOf([{ name: 'Dockerfile', text: 'FROM a\n' }], undefined));
  expect(execFileSync('tar', ['-t'], { input: tar }).toString()).toBe('Dockerfile\n');
});
