// The service's file with the join token, after a join.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { sha256Hex } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { emptyTokenFile } from '#agent/upstream/token-file.ts';
import { tempDirectory } from '../../helpers/programs.ts';

const log = createLog({ name: 'test', level: 'silent' });

test('the token that joined this host is left in no file; another one is', async () => {
  const made = tempDirectory('token');
  try {
    const path = join(made.path, 'join-token');
    // A host that was joined in another way has no such file.
    await emptyTokenFile(path, sha256Hex('lse1.f.first'), log);
    writeFileSync(path, 'lse1.f.second\n', { mode: 0o600 });
    await emptyTokenFile(path, sha256Hex('lse1.f.first'), log);
    expect(readFileSync(path, 'utf8')).toBe('lse1.f.second\n');
    await emptyTokenFile(path, sha256Hex('lse1.f.second'), log);
    expect(readFileSync(path, 'utf8')).toBe('');
  } finally {
    made.remove();
  }
});
