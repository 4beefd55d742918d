// Alert rules and dashboard: the verdict of Prometheus' own tool, and no query for names that do not exist.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import {
  ALERTS,
  ALERT_TESTS,
  alertRules,
  dashboardQueries,
  dashboardVariables,
  documentedMetrics,
  documentedQueries,
  filledIn,
  inOneLine,
  unknownIn,
} from '../helpers/monitoring.ts';
import { findProgram, missingService, runProgram, tempDirectory, test } from '../helpers/services.ts';

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

  // The tool takes ten seconds of a core.
  test('fire on what they are for, and are quiet beside it', { timeout: 240_000 }, async () => {
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

test('joins that the documentation shows are evaluated word by word', () => {
  const cases = inOneLine(readFileSync(ALERT_TESTS, 'utf8'));
  const known = documentedMetrics();
  expect(documentedQueries()).toHaveLength(3);
  for (const query of documentedQueries()) {
    expect(unknownIn(query, known), query).toEqual([]);
    expect(cases).toContain(`expr: >- ${query} eval_time`);
  }
});

describe('the dashboard', () => {
  test('has variables for the pool, the machine and the model of GPUs, and Prometheus reads every query', async () => {
    expect(dashboardVariables()).toEqual(['datasource', 'pool', 'instance', 'model', 'top']);
    const rules = dashboardQueries().map(({ expr }, index) => ({
      record: `panel:query${index}`,
      expr: filledIn(expr),
    }));
    const directory = tempDirectory('dash');
    try {
      const file = join(directory.path, 'rules.yml');
      // JSON is YAML.
      writeFileSync(file, JSON.stringify({ groups: [{ name: 'dashboard', rules }] }));
      expect(await promtool('check', 'rules', '--lint=none', file)).toContain(`SUCCESS: ${rules.length} rules found`);
    } finally {
      directory.remove();
    }
  });

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
    expect(unknownIn('longshore_agent_connected{pool="a"}', known)).toEqual([]);
    expect(unknownIn('longshore_task_oldest_pending_seconds{pool="a"}', known)).toEqual([
      'longshore_task_oldest_pending_seconds{pool}',
    ]);
    expect(unknownIn('longshore_task_queue_wait_seconds', known)).toEqual(['longshore_task_queue_wait_seconds']);
  });
});
