import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { ContainerRegistry } from '#scheduler/fleet/containers/container-registry.ts';
import { LogSink } from '#scheduler/fleet/logs/log-sink.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import type { NewLogLine } from '#scheduler/stores/store/queries/logs.ts';

test('lines of the scheduler wait for each other: one statement is under way, however many there are', async () => {
  const under: (() => void)[] = [];
  const query = () => new Promise((resolve) => under.push(() => resolve({ rows: [], rowCount: 0 })));
  const sink = new LogSink({ db: { query } as unknown as Db, containers: {} as ContainerRegistry });
  const line = {
    workspaceId: 'w',
    stubId: 's',
    deploymentId: null,
    containerId: '',
    taskId: null,
    stream: 'system',
    line: 'x',
    atMs: 1,
  } as unknown as NewLogLine;
  for (let index = 0; index < 300; index += 1) {
    sink.note(line);
    await setImmediate();
  }
  expect(under).toHaveLength(1);
  under[0]?.();
  await setImmediate();
  await setImmediate();
  expect(under).toHaveLength(2);
});
