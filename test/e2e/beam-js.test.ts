// The published JavaScript client, as it comes from its registry, from the files of a directory to an answer.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { runProgram } from '../helpers/services.ts';
import { test } from '../helpers/platform.ts';

const CLIENT = join(import.meta.dirname, '../fixtures/beam-js/client.mjs');
const APP = `import time

def greet(name="world"):
    return {"greeting": f"Hello, {name}!"}

def wait():
    time.sleep(600)
`;
const UUID = expect.stringMatching(/^[0-9a-f-]{36}$/);

test('syncs, deploys, invokes, lists, cancels, stops and deletes', async ({ platform }) => {
  const directory = join(platform.directory, 'js-app');
  mkdirSync(directory);
  writeFileSync(join(directory, 'app.py'), APP);
  // Builds an image with a package of the index, too.
  const args = [CLIENT, platform.url, platform.token, platform.workspaceId];
  await runProgram(process.execPath, args, { cwd: directory }, 150_000);
  const report = JSON.parse(readFileSync(join(directory, 'report.json'), 'utf8')) as Readonly<Record<string, unknown>>;
  const { deployed } = report as { readonly deployed: Readonly<Record<string, unknown>> };
  expect(report).toEqual({
    workspace: platform.workspaceId,
    images: {
      plain: { success: true, imageId: 'longshore.internal/base:python3', pythonVersion: 'python3' },
      named: { success: true, imageId: 'registry.example/python:1', pythonVersion: 'python3' },
      packages: true,
    },
    volume: [true, UUID],
    synced: [true, true],
    deployed: {
      ok: true,
      deploymentId: UUID,
      version: 1,
      invokeUrl: `${platform.url}/endpoint/from-js/v1`,
      stubUrl: expect.stringMatching(/\/endpoint\/id\/[0-9a-f-]{36}$/),
    },
    found: [1, 2, 3].map(() => [deployed['deploymentId'], 1]),
    listed: 1,
    nobody: 'Deployment not found.',
    noId: 'Deployment not found',
    answer: { greeting: 'Hello, JavaScript!' },
    latest: { greeting: 'Hello, again!' },
    task: [true, 'CANCELLED'],
    noTask: 'Task not found',
    tasks: expect.arrayContaining([
      ['endpoint/deployment', true],
      ['taskqueue/deployment', true],
    ]),
    stopped: [true, false],
    deleted: 'Deployment not found.',
  });
});

test('is the one that was published', () => {
  const root = join(import.meta.dirname, '../..');
  const { version } = JSON.parse(readFileSync(join(root, 'node_modules/@beamcloud/beam-js/package.json'), 'utf8')) as {
    readonly version: string;
  };
  expect(version).toBe('1.0.17');
});
