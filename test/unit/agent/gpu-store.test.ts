// The file of devices: a burst of changes is one write, and a caller that waits for the file waits for all of them.
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { createLog } from '#shared/log.ts';
import { DeviceFile } from '../../../agent/devices/store.ts';

test('a burst of changes is written once or twice, and the last of them is in the file', async () => {
  const stateDir = await mkdtemp(join(tmpdir(), 'lsg-'));
  onTestFinished(() => rm(stateDir, { recursive: true }));
  let [changes, writes] = [0, 0];
  const file = new DeviceFile(stateDir, createLog({ name: 'test', level: 'silent' }), () => {
    writes += 1;
    return {
      version: 1,
      bootId: 'boot',
      sequence: changes,
      savedAtMs: 0,
      xids: {},
      devices: [],
      probedDriver: '',
      idle: { driver: '', lowestMib: {}, acceptedMib: {} },
      rests: {},
    };
  });
  for (changes = 1; changes < 200; changes += 1) {
    file.changed();
    await setImmediate();
  }
  await file.written();
  // The first write starts at once, and the second follows it; a slow machine may need a few more.
  expect(writes).toBeLessThan(5);
  expect(JSON.parse(await readFile(join(stateDir, 'gpus.json'), 'utf8'))).toMatchObject({ sequence: 200 });
  expect(await file.read()).toMatchObject({ sequence: 200 });
  await file.written();
  expect(writes).toBeLessThan(5);
});
