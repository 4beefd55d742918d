// Alert rules and dashboard: what Prometheus' own tool says of them, and that they ask for nothing that does not exist.
import { readFileSync } from 'node:fs';
import { describe, expect } from 'vitest';
import {
  ALERTS,
  ALERT_TESTS,
  alertRules,
  dashboardQueries,
  documentedMetrics,
  unknownIn,
} from '../helpers/monitoring.ts';
import { findProgram, missingService, runProgram, test } from '../helpers/services.ts';

function promtool(...args: readonly string[]): Promise<string> {
  const program = findProgram('promtool');
  if (program === undefined) throw missingService('promtool');
  return runProgram(program, args);
}

describe('alert rules', () => {
  test('are right by promtool', async () => {
    expect(await promtool('check', 'rules', '--lint=all', '--lint-fatal', ALERTS)).toContain(
      `SUCCESS: ${alertRules().length} rules found`,
    );
  });

  test('fire on what they are for, and are quiet beside it', async () => {
    expect(await promtool('test', 'rules', ALERT_TESTS)).toContain('SUCCESS');
  });

  test('each have a case that fires and one that does not', () => {
    const cases = readFileSync(ALERT_TESTS, 'utf8');
    for (const { alert } of alertRules()) {
      const quiet = `alertname: ${alert}, exp_alerts: []`;
      const fires = new RegExp(`alertname: ${alert}\\n\\s+exp_alerts:\\n\\s+- exp_labels`);
      expect(cases, alert).toMatch(fires);
      expect(cases, alert).toContain(quiet);
    }
  });

  test('ask for metrics and labels that exist', () => {
    const known = documentedMetrics();
    expect(alertRules().length).toBeGreaterThan(20);
    for (const { alert, expr } of alertRules()) expect(unknownIn(expr, known), `${alert}: ${expr}`).toEqual([]);
  });
});

describe('the dashboard', () => {
  test('asks for metrics and labels that exist', () => {
    const known = documentedMetrics();
    expect(dashboardQueries().length).toBeGreaterThan(40);
    for (const { panel, expr } of dashboardQueries()) expect(unknownIn(expr, known), `${panel}: ${expr}`).toEqual([]);
  });

  test('shows or alerts on every metric of the scheduler that says how it does', () => {
    const all = [...dashboardQueries(), ...alertRules()].map(({ expr }) => expr).join('\n');
    const unused = [...documentedMetrics().keys()]
      .filter((name) => /^longshore_(?:scheduler|autoscaler|task)_/.test(name) && !/_(?:sum|count)$/.test(name))
      .filter((name) => !new RegExp(`\\b${name}\\b`).test(all));
    expect(
      unused,
      'each needs a panel in deploy/grafana/longshore.json or a rule in deploy/prometheus/alerts.yml',
    ).toEqual([]);
  });

  test('a query for what does not exist would be seen', () => {
    const known = documentedMetrics();
    expect(unknownIn('rate(longshore_task_started_total[5m])', known)).toEqual(['longshore_task_started_total']);
    expect(unknownIn('longshore_task_in_state{status="PENDING"}', known)).toEqual(['longshore_task_in_state{status}']);
    expect(unknownIn('sum by (pool) (longshore_task_in_state)', known)).toEqual(['by pool']);
    expect(unknownIn('longshore_task_queue_wait_seconds', known)).toEqual(['longshore_task_queue_wait_seconds']);
  });
});
