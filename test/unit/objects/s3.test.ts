import { globSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { loadConfig } from '#shared/config.ts';
import { SETTING_NAMES } from '#shared/settings.ts';
import { openObjectBackend } from '#scheduler/compose/objects.ts';
import { SchedulerSettings } from '#scheduler/config.ts';

const ROOT = resolve(import.meta.dirname, '..', '..', '..');

test('the S3 client is loaded where a bucket is named, and nowhere else', () => {
  const files = globSync('{scheduler,shared,cli,agent}/**/*.ts', { cwd: ROOT });
  const loading = files.filter((file) =>
    /^(?:import|export)\b[^;]*?from '(?:@aws-sdk\/[^']+|[^']*\/s3\.ts)'/m.test(readFileSync(join(ROOT, file), 'utf8')),
  );
  expect(loading).toEqual(['scheduler/stores/objects/s3.ts']);
});

test('half a pair of keys is refused by the names of both', async () => {
  const env = { LONGSHORE_DATA_DIR: '/nowhere', LONGSHORE_OBJECTS_BUCKET: 'b', LONGSHORE_OBJECTS_ACCESS_KEY_ID: 'id' };
  const settings = loadConfig(SchedulerSettings, env, { known: SETTING_NAMES });
  await expect(openObjectBackend(settings)).rejects.toMatchObject({
    code: 'bad_config',
    message: expect.stringMatching(/ACCESS_KEY_ID and LONGSHORE_OBJECTS_SECRET_ACCESS_KEY belong together/),
  });
});

test('a path style that is no word for yes or no, and a prefix that is no folder, are refused by their names', () => {
  const env = { LONGSHORE_DATA_DIR: '/d', LONGSHORE_OBJECTS_PATH_STYLE: 'maybe', LONGSHORE_OBJECTS_PREFIX: '../x' };
  expect(() => loadConfig(SchedulerSettings, env, { known: SETTING_NAMES })).toThrow(
    /LONGSHORE_OBJECTS_PATH_STYLE.*\n.*LONGSHORE_OBJECTS_PREFIX/,
  );
});
