import { defineConfig } from 'vitest/config';

/**
 * unit: pure, no I/O. integration: real Redis, Postgres, Docker. e2e: whole
 * daemons. hosts: tests that take longer than `npm test` may, one file at a time.
 */
export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/unit/**/*.test.ts'],
          environment: 'node',
          testTimeout: 10_000,
          // Vitest would leave a core to itself, which has next to nothing to do.
          maxWorkers: '100%',
          // Files of a worker share modules, whose imports took as much of a processor as the tests.
          isolate: false,
        },
      },
      {
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          environment: 'node',
          testTimeout: 60_000,
          hookTimeout: 120_000,
          // Each file has engines and directories of its own, and most files mostly wait: two keep two cores half busy.
          maxWorkers: 4,
        },
      },
      {
        test: {
          name: 'e2e',
          include: ['test/e2e/**/*.test.ts'],
          environment: 'node',
          testTimeout: 180_000,
          hookTimeout: 240_000,
          maxWorkers: 3,
        },
      },
      {
        test: {
          name: 'hosts',
          include: ['test/hosts/**/*.test.ts'],
          environment: 'node',
          testTimeout: 180_000,
          hookTimeout: 240_000,
          fileParallelism: false,
        },
      },
    ],
  },
});
