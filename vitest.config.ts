import { defineConfig } from 'vitest/config';
import { LongestFirst } from './test/helpers/longest-first.ts';
import { TEST_NODE_FLAGS } from './test/helpers/node-flags.ts';

/** Polls without a bound of their own give up after a second otherwise, which a busy machine may need. */
const patient = { poll: { timeout: 20_000 } };

/**
 * unit: pure, no I/O. integration: real Redis, Postgres, Docker. e2e: whole daemons. hosts: tests that take longer than
 * `npm test` may, one file at a time. pictures: takes those of docs/pictures.
 */
export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/unit/**/*.test.ts'],
          environment: 'node',
          expect: patient,
          // Property tests take 2 s on a quiet machine, and this long beside other work.
          testTimeout: 60_000,
          // Some files mostly wait, for programs that they run.
          maxWorkers: 4,
          // Files of a worker share modules, whose imports took as much of a processor as the tests.
          isolate: false,
        },
      },
      {
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          environment: 'node',
          expect: patient,
          testTimeout: 60_000,
          hookTimeout: 120_000,
          // Each file has engines and directories of its own, and most files mostly wait: two keep two cores half busy.
          maxWorkers: 4,
          // As in unit: without it, a third of the processor time went into loading the same modules again.
          isolate: false,
          execArgv: [...TEST_NODE_FLAGS],
        },
      },
      {
        test: {
          name: 'e2e',
          include: ['test/e2e/**/*.test.ts'],
          environment: 'node',
          expect: patient,
          testTimeout: 180_000,
          hookTimeout: 240_000,
          maxWorkers: 3,
          execArgv: [...TEST_NODE_FLAGS],
        },
      },
      {
        test: {
          name: 'hosts',
          include: ['test/hosts/**/*.test.ts'],
          environment: 'node',
          expect: patient,
          testTimeout: 180_000,
          hookTimeout: 240_000,
          fileParallelism: false,
        },
      },
      {
        test: {
          name: 'pictures',
          include: ['test/pictures/**/*.test.ts'],
          environment: 'node',
          expect: patient,
          testTimeout: 300_000,
          hookTimeout: 240_000,
        },
      },
    ],
  },
});
