/**
 * `test` with real services as fixtures, for integration and e2e tests. A fixture starts when a test names it: `test('a
 * task waits', async ({ redis, docker }) => …)`. Redis and Postgres live as long as the file, the view of Docker as
 * long as the test. A connection, container, network or volume left behind fails the test or file.
 */
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { test as base } from 'vitest';
import { docker, type TestDocker } from './docker.ts';
import { aPostgres, type PrivatePostgres } from './postgres.ts';
import { aRedis, type PrivateRedis } from './redis.ts';

export { docker, type TestDocker, TEST_LABEL } from './docker.ts';
export { aPostgres, type PrivatePostgres } from './postgres.ts';
export {
  findProgram,
  freePort,
  missingService,
  runProgram,
  startProgram,
  tempDirectory,
  testRunId,
  waitFor,
} from './programs.ts';
export { aRedis, type PrivateRedis } from './redis.ts';

export const test = base
  .extend('redis', { scope: 'file' }, async ({}, { onCleanup }): Promise<PrivateRedis> => {
    const redis = await aRedis();
    onCleanup(redis.stop);
    return redis;
  })
  .extend('postgres', { scope: 'file' }, async ({}, { onCleanup }): Promise<PrivatePostgres> => {
    const postgres = await aPostgres();
    onCleanup(postgres.stop);
    return postgres;
  })
  .extend('docker', async ({}, { onCleanup }): Promise<TestDocker> => {
    const engine = await docker();
    onCleanup(engine.cleanUp);
    return engine;
  });
