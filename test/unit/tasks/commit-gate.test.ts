import { expect, test } from 'vitest';
import { AppError } from '#shared/errors.ts';
import { createLog } from '#shared/log.ts';
import { CommitGate } from '#scheduler/tasks/admission/commit-gate.ts';

const log = createLog({ name: 'test', level: 'silent' });
const away = new AppError('database_unavailable', 'the database does not answer');

/** Makes a gate whose probes come when the test says so. */
function aGate(probe: () => Promise<unknown> = () => Promise.resolve()) {
  const abort = new AbortController();
  const clock = { nowMs: 0 };
  let wake: ((goesOn: boolean) => void) | undefined;
  const gate = new CommitGate({
    probe,
    log,
    signal: abort.signal,
    nowMs: () => clock.nowMs,
    pause: () => new Promise((resolve) => (wake = resolve)),
  });
  const probed = async (goesOn = true): Promise<void> => {
    wake?.(goesOn);
    wake = undefined;
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { gate, clock, probed, isProbing: () => wake !== undefined };
}

test('a commit that fails closes it, and a probe that commits opens it', async () => {
  let probes = 0;
  const { gate, probed, isProbing } = aGate(() => {
    probes += 1;
    return probes < 3 ? Promise.reject(away) : Promise.resolve();
  });
  expect(gate.isClosed()).toBe(false);
  await expect(gate.watch(() => Promise.reject(away))).rejects.toBe(away);
  await expect(gate.watch(() => Promise.reject(away))).rejects.toBe(away);
  for (const isOpen of [false, false, true]) {
    expect([gate.isClosed(), isProbing()]).toEqual([true, true]);
    await probed();
    expect(gate.isClosed()).toBe(!isOpen);
  }
  expect([probes, isProbing()]).toEqual([3, false]);
});

test('what the database refuses of one task closes nothing', async () => {
  const { gate } = aGate();
  const refused = new AppError('database_error', 'bad text', { details: { sqlState: '22021' } });
  await expect(gate.watch(() => Promise.reject(refused))).rejects.toBe(refused);
  expect(gate.isClosed()).toBe(false);
  const full = new AppError('database_error', 'disk full', { details: { sqlState: '53100' } });
  await expect(gate.watch(() => Promise.reject(full))).rejects.toBe(full);
  expect(gate.isClosed()).toBe(true);
});

test('a commit that does not come back closes it before it has failed; an old one does not close it again', async () => {
  const { gate, clock, probed } = aGate();
  const stalled = Promise.withResolvers<void>();
  const commit = gate.watch(() => stalled.promise);
  clock.nowMs = 1_999;
  expect(gate.isClosed()).toBe(false);
  clock.nowMs = 2_000;
  expect(gate.isClosed()).toBe(true);
  await probed();
  clock.nowMs = 60_000;
  expect(gate.isClosed()).toBe(false);
  stalled.resolve();
  await commit;
  expect(gate.isClosed()).toBe(false);
});

test('its probes end with the process', async () => {
  let probes = 0;
  const { gate, probed, isProbing } = aGate(() => Promise.resolve((probes += 1)));
  await expect(gate.watch(() => Promise.reject(away))).rejects.toBe(away);
  await probed(false);
  expect([probes, gate.isClosed(), isProbing()]).toEqual([0, true, false]);
});
