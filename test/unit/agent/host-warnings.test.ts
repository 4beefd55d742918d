// Warnings of a host's hourly checks, for the scheduler and the metrics page.
import { expect, test } from 'vitest';
import { createLog } from '#shared/log.ts';
import type { Finding } from '../../../agent/preflight/finding.ts';
import { failed, ok, warning } from '../../../agent/preflight/finding.ts';
import { screenLine } from '#cli/up/log-file.ts';
import { HostWarnings } from '../../../agent/preflight/warnings.ts';

const watching = (check: () => readonly Finding[]) => {
  const told: unknown[] = [];
  const counted = new Map<string, boolean>();
  const lines: string[] = [];
  const warnings = new HostWarnings({
    check: () => Promise.resolve(check()),
    onCount: (name, warns) => void counted.set(name, warns),
    tell: (some) => told.push(some.map(({ check: name }) => name)),
    log: createLog({ name: 'agent', destination: { write: (line: string) => void lines.push(line) } }),
  });
  const onScreen = (): (string | undefined)[] => lines.map((line) => screenLine('agent', line));
  return { warnings, told, counted, onScreen };
};

test('warnings and failures are told when they change, and all checks are counted each time', async () => {
  let findings: readonly Finding[] = [ok('engine', 'Docker 29'), warning('gpu memory', 'rows', 'replace it')];
  const { warnings, told, counted } = watching(() => findings);
  await warnings.look();
  await warnings.look();
  expect(told).toEqual([['gpu memory']]);
  expect(warnings.current).toEqual([{ check: 'gpu memory', found: 'rows', remedy: 'replace it' }]);
  expect(counted).toEqual(new Map(Object.entries({ engine: false, 'gpu memory': true })));
  findings = [failed('engine', 'away', 'start it')];
  await warnings.look();
  expect(counted).toEqual(new Map(Object.entries({ engine: true, 'gpu memory': false })));
  findings = [ok('engine', 'Docker 29')];
  await warnings.look();
  expect(told).toEqual([['gpu memory'], ['engine'], []]);
});

test('a check with several findings warns as long as one of them does', async () => {
  const { warnings, counted } = watching(() => [warning('file system', 'nfs', 'move it'), ok('file system', 'ext4')]);
  await warnings.look();
  expect(counted).toEqual(new Map([['file system', true]]));
});

test('a screen shows a warning by its check and its cure, and nothing of a warning that matters to fleets alone', async () => {
  const { warnings, onScreen } = watching(() => [
    warning('forwarding', 'off: containers reach nothing', 'sudo sysctl --system'),
    warning('live restore', 'off', 'set it'),
    failed('cgroup', 'v1: no limits of memory', 'boot another kernel'),
  ]);
  await warnings.look();
  expect(onScreen()).toEqual([
    'agent: warning: a check of the host warns: forwarding: off: containers reach nothing\n  -> sudo sysctl --system',
    undefined,
    'agent: warning: a check of the host warns: cgroup: v1: no limits of memory\n  -> boot another kernel',
  ]);
  expect(warnings.current.map(({ check }) => check)).toEqual(['forwarding', 'live restore', 'cgroup']);
});

test('a look that hangs is not repeated, and tells nothing to an agent that stopped', async () => {
  const { promise, resolve } = Promise.withResolvers<readonly Finding[]>();
  const told: unknown[] = [];
  const warnings = new HostWarnings({
    check: () => promise,
    onCount: () => told.push('counted'),
    tell: () => told.push('told'),
    log: createLog({ name: 'test', level: 'silent' }),
  });
  const look = warnings.look();
  await expect(warnings.look()).rejects.toThrow('has not ended');
  warnings.stop();
  resolve([warning('disk', 'full', 'make room')]);
  await look;
  expect(told).toEqual([]);
});
