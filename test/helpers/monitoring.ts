/** Metrics that `deploy/` queries, and metrics that docs/metrics.md describes. */
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const ROOT = resolve(import.meta.dirname, '..', '..');
export const ALERTS = join(ROOT, 'deploy', 'prometheus', 'alerts.yml');
export const ALERT_TESTS = join(ROOT, 'deploy', 'prometheus', 'alerts.test.yml');

/** Labels of each metric, as the document has them. */
export function documentedMetrics(): ReadonlyMap<string, readonly string[]> {
  const docs = readFileSync(join(ROOT, 'docs', 'metrics.md'), 'utf8');
  const rows = docs.matchAll(/^\| `(longshore_\w+)` +\| (\w+) +\| (.*?) +\|/gm);
  const known = new Map<string, readonly string[]>();
  for (const [, name = '', type, labels = ''] of rows) {
    const own = [...labels.matchAll(/`(\w+)`/g)].map((match) => match[1] ?? '');
    if (type !== 'histogram') {
      known.set(name, own);
      continue;
    }
    for (const part of ['_sum', '_count']) known.set(`${name}${part}`, own);
    known.set(`${name}_bucket`, [...own, 'le']);
  }
  return known;
}

/** `alert` names of the rule file, with their expressions. */
export function alertRules(): readonly { readonly alert: string; readonly expr: string }[] {
  const text = readFileSync(ALERTS, 'utf8');
  return [...text.matchAll(/- alert: (\w+)\n(?:\s+#.*\n)*\s+expr: '((?:[^']|'')*)'/g)].map(
    ([, alert = '', expr = '']) => ({
      alert,
      expr: expr.replaceAll("''", "'"),
    }),
  );
}

interface Panel {
  readonly title: string;
  readonly targets?: readonly { readonly expr: string }[];
}

/** Every query of the dashboard. */
export function dashboardQueries(): readonly { readonly panel: string; readonly expr: string }[] {
  const text = readFileSync(join(ROOT, 'deploy', 'grafana', 'longshore.json'), 'utf8');
  const { panels } = JSON.parse(text) as { readonly panels: readonly Panel[] };
  return panels.flatMap(({ title, targets }) => (targets ?? []).map(({ expr }) => ({ panel: title, expr })));
}

/** Queries that docs/metrics.md shows, on one line each. */
export function documentedQueries(): readonly string[] {
  const docs = readFileSync(join(ROOT, 'docs', 'metrics.md'), 'utf8');
  return [...docs.matchAll(/^```promql\n([^`]*)```$/gm)].map((match) => inOneLine(match[1] ?? ''));
}

export const inOneLine = (text: string): string => text.replace(/\s+/g, ' ').trim();

/** Variables of the dashboard, each with a value that Grafana may put in its place. */
const VARIABLES: Readonly<Record<string, string>> = {
  __rate_interval: '5m',
  pool: 'default',
  instance: '.*',
  model: 'H100|L4',
  top: '10',
};

/** A query of the dashboard as Prometheus gets it. @throws Error naming a variable that the dashboard does not have */
export function filledIn(expr: string, values: Readonly<Record<string, string>> = {}): string {
  return expr.replaceAll(/\$(?!\d)(\w+)/g, (_all, name: string) => {
    const value = { ...VARIABLES, ...values }[name];
    if (value === undefined) throw new Error(`$${name} is no variable of the dashboard`);
    return value;
  });
}

export function dashboardVariables(): readonly string[] {
  const text = readFileSync(join(ROOT, 'deploy', 'grafana', 'longshore.json'), 'utf8');
  const { templating } = JSON.parse(text) as { readonly templating: { readonly list: readonly { name: string }[] } };
  return templating.list.map(({ name }) => name);
}

/** Labels that Prometheus adds by itself, and `pool` of machines, which docs/metrics.md has it add. */
const SCRAPED = ['job', 'instance'];
const scrapedOf = (name: string): readonly string[] =>
  name.startsWith('longshore_agent_') ? [...SCRAPED, 'pool'] : SCRAPED;

/**
 * Unknown names in a query: a metric, or a label of a metric;
 * also labels that it groups by and none of its metrics has.
 */
export function unknownIn(expr: string, known: ReadonlyMap<string, readonly string[]>): readonly string[] {
  const unknown: string[] = [];
  const some = new Set(SCRAPED);
  // Labels of machines' targets, and of NVIDIA's exporter.
  if (expr.includes('longshore-agent') || expr.includes('longshore_agent_')) some.add('pool');
  if (expr.includes('DCGM_')) some.add('UUID');
  for (const [, name = '', selector = ''] of expr.matchAll(/\b(longshore_\w+|up)\b(?:\{([^}]*)\})?/g)) {
    const labels = name === 'up' ? [] : known.get(name);
    if (labels === undefined) {
      unknown.push(name);
      continue;
    }
    for (const label of labels) some.add(label);
    for (const [, asked = ''] of selector.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g))
      if (![...labels, ...scrapedOf(name)].includes(asked)) unknown.push(`${name}{${asked}}`);
  }
  for (const [, made = ''] of expr.matchAll(/"(\w+)", "\$\d", "\w+", "/g)) some.add(made);
  for (const [, list = ''] of expr.matchAll(/\b(?:by|on|without|ignoring)\s*\(([^)]*)\)/g))
    for (const label of list.split(',').map((word) => word.trim()))
      if (label !== '' && !some.has(label)) unknown.push(`by ${label}`);
  return unknown;
}
