// Warnings of a host's hourly checks, for the scheduler and the metrics page.
import { expect, test } from 'vitest';
import { createLog } from '#shared/log.ts';
import type { Finding } from '../../../agent/preflight/finding.ts';
import { failed, ok, warning } from '../../../agent/preflight/finding.ts';
import { HostWarnings } from '../../../agent/preflight/warnings.ts';

test('warnings and failures are told when they change, and all checks are counted each time', async () => {
  let findings: readonly Finding[] = [ok('engine', 'Docker 29'), warning('gpu memory', 'rows', 'replace it')];
  const told: unknown[] = [];
  const counted: string[] = [];
  const warnings = new HostWarnings({
    check: () => Promise.resolve(findings),
    onCount: (all) => counted.push(all.map(({ check, level }) => `${check} ${level}`).join()),
    tell: (some) => told.push(some.map(({ check }) => check)),
    log: createLog({ name: 'test', level: 'silent' }),
  });
  await warnings.look();
  await warnings.look();
  expect(told).toEqual([['gpu memory']]);
  expect(warnings.current).toEqual([{ check: 'gpu memory', found: 'rows', remedy: 'replace it' }]);
  findings = [failed('engine', 'away', 'start it')];
  await warnings.look();
  findings = [ok('engine', 'Docker 29')];
  await warnings.look();
  expect(told).toEqual([['gpu memory'], ['engine'], []]);
  expect(counted).toHaveLength(4);
});
