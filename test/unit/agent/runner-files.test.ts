import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { installRunner } from '../../../agent/containers/runner-files.ts';

test('documents beside the runner go into no container, and make no new version of it', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'runner-files-'));
  try {
    const runner = join(directory, 'source', 'longshore', 'runner');
    mkdirSync(runner, { recursive: true });
    writeFileSync(join(runner, '__main__.py'), 'pass\n');
    const without = await installRunner(join(directory, 'source'), join(directory, 'installed'));
    writeFileSync(join(runner, 'README.md'), '# The runner\n');
    const beside = await installRunner(join(directory, 'source'), join(directory, 'installed'));
    expect(beside).toBe(without);
    expect(readdirSync(join(beside, 'longshore', 'runner'))).toEqual(['__main__.py']);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
