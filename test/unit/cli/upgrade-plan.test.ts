import { expect, test } from 'vitest';
import { commandFor, isUpgraded, planUpgrade, versionsIn } from '#cli/upgrade/plan.ts';
import type { PoolMachine } from '#cli/upgrade/plan.ts';

const aMachine = (id: string, more: Partial<PoolMachine> = {}): PoolMachine => ({
  id,
  status: 'available',
  agentVersion: '1',
  lastKeepalive: '2026-01-01T00:00:00.000Z',
  conditions: [],
  ...more,
});
const EARLIER = '2025-12-31T23:59:59.000Z';
const ids = (machines: readonly PoolMachine[]): readonly string[] => machines.map(({ id }) => id);

test('machines in service go first; those with the version and those that are away are left alone', () => {
  const plan = planUpgrade(
    [
      aMachine('a', { status: 'disabled' }),
      aMachine('c'),
      aMachine('b'),
      aMachine('d', { agentVersion: '2' }),
      aMachine('e', { status: 'registered' }),
      aMachine('f', { status: 'pending', agentVersion: '' }),
    ],
    ['2'],
  );
  expect(ids(plan.todo)).toEqual(['b', 'c', 'a']);
  expect(ids(plan.already)).toEqual(['d']);
  expect(ids(plan.away)).toEqual(['e', 'f']);
});

test('an upgrade is good with the new version in service, not with one of both alone', () => {
  const before = aMachine('a');
  const is = (now: Partial<PoolMachine>) => isUpgraded(before, aMachine('a', now), ['2'], EARLIER);
  expect(is({ agentVersion: '2' })).toBe(true);
  expect(is({})).toBe(false);
  for (const status of ['registered', 'disabled', 'pending'])
    expect(is({ agentVersion: '2', status }), status).toBe(false);
});

test.for(['available', 'disabled'])('a machine that was %s is upgraded at the second sign of life', (status) => {
  const before = aMachine('a', { status });
  const now = { ...before, agentVersion: '2' };
  expect(isUpgraded(before, now, ['2'], undefined)).toBe(false);
  expect(isUpgraded(before, now, ['2'], now.lastKeepalive)).toBe(false);
  expect(isUpgraded(before, now, ['2'], EARLIER)).toBe(true);
});

test('no upgrade is good with a condition that keeps work away and was not there before', () => {
  const is = (before: readonly string[], now: readonly string[]) =>
    isUpgraded(
      aMachine('a', { conditions: before }),
      aMachine('a', { agentVersion: '2', conditions: now }),
      ['2'],
      EARLIER,
    );
  for (const name of ['DockerDown', 'EngineCannotStart', 'Preflight']) {
    expect(is([], [name]), name).toBe(false);
    expect(is([name], [name]), name).toBe(true);
    expect(is([name], []), name).toBe(true);
  }
  expect(is(['DiskPressure'], ['DiskPressure', 'DockerDown'])).toBe(false);
  // Neither a condition that blocks nothing nor one of a later version.
  expect(is([], ['GpuDegraded', 'OfLater'])).toBe(true);
});

test('a hostname reaches the arguments of a command only if it is one', () => {
  expect(commandFor('ssh {host} sh', { host: 'gpu-1.example', id: 'a' })).toEqual(['ssh', 'gpu-1.example', 'sh']);
  expect(commandFor('to --id={id}', { host: '', id: 'a' })).toEqual(['to', '--id=a']);
  for (const host of ['-oProxyCommand=x', 'a b', 'a;b', '', '$(x)'])
    expect(commandFor('ssh {host} sh', { host, id: 'a' }), host).toBeUndefined();
});

test('versions of both architectures are read from the script', () => {
  expect(versionsIn("RELEASE_VERSION='1.2.3'\nRELEASE_FILE='x'\nRELEASE_ARM64_VERSION='1.2.3'\n")).toEqual(['1.2.3']);
  expect(versionsIn("RELEASE_VERSION=''\nRELEASE_ARM64_VERSION='2'\n")).toEqual(['2']);
});
