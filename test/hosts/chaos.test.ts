// A few kill rounds of each kind; `npm run chaos` runs fifty. Every accepted task ends once, none is lost, and no
// handler's own records contradict that. Not part of `npm test`: tasks that a dead process had fetched and not sent
// come back minutes later. Kills of the agent are in agent-kills.test.ts.
import { describe, test } from 'vitest';
import { KILL_TEST_MS, killsAreSurvived } from '../helpers/kill-rounds.ts';

const ROUNDS = 2;

describe(
  'kill -9 under load loses no accepted task and runs none beyond its attempts',
  { timeout: KILL_TEST_MS },
  () => {
    test('of the scheduler, on embedded stores', () =>
      killsAreSurvived({ stores: 'embedded', kind: 'kill scheduler' }, ROUNDS));
    test('of the scheduler, on Postgres and Redis servers', () =>
      killsAreSurvived({ stores: 'servers', kind: 'kill scheduler' }, ROUNDS));
    test('of a Redis that comes back a second older, under two schedulers', () =>
      killsAreSurvived({ stores: 'servers', kind: 'kill redis-rollback' }, ROUNDS));
    test('of Postgres', () => killsAreSurvived({ kind: 'kill postgres' }, ROUNDS));
    test('of one of two schedulers, whose calls all cross', () => killsAreSurvived({ kind: 'kill replica' }, ROUNDS));
    test('of the Redis child', () => killsAreSurvived({ stores: 'embedded', kind: 'kill redis' }, ROUNDS));
  },
);

describe(
  'what is away for a while loses no accepted task and runs none beyond its attempts',
  { timeout: KILL_TEST_MS },
  () => {
    test('a scheduler that stands still', () => killsAreSurvived({ kind: 'freeze scheduler' }, ROUNDS));
    test('Redis', () => killsAreSurvived({ kind: 'away redis' }, ROUNDS));
    test('Postgres', () => killsAreSurvived({ kind: 'away postgres' }, ROUNDS));
    test('schedulers that are replaced one after the other', () =>
      killsAreSurvived({ kind: 'replace scheduler' }, ROUNDS));
  },
);
