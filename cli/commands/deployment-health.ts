// `longshore deployment health`: how each deployment is and why, the worst first.
import type { DeploymentHealthFlags } from '../flags.ts';
import { ageOf } from '../format.ts';
import { listField, numberField, objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note } from '../print.ts';
import { showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

export async function runDeploymentHealth(flags: DeploymentHealthFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const query = new URLSearchParams({ limit: String(flags.limit) });
    if (flags.state !== undefined) query.set('state', flags.state);
    if (flags.name !== undefined) query.set('name', flags.name);
    const answer = await client.rest(`/deployment-health/${await client.workspaceId()}?${query.toString()}`);
    const nowMs = Date.now();
    showList(
      invocation,
      listField(answer, 'data'),
      ['NAME', 'VERSION', 'STATE', 'FOR', 'READY', 'WAITING', 'CALLS 1H', 'ERRORS', 'P50/P95', 'WHY', 'NEXT STEP'],
      (row) => [
        textField(row, 'name'),
        `v${numberField(row, 'version')}`,
        textField(row, 'state'),
        textField(row, 'since') === '' ? '-' : ageOf(textField(row, 'since'), nowMs),
        row['ready'] === null ? '?' : `${numberField(row, 'ready')}/${wantedOf(row)}`,
        row['waiting'] === null ? '?' : String(numberField(row, 'waiting')),
        ...hourOf(objectField(row, 'hour')),
        whyOf(row),
        textField(row, 'next_step') || '-',
      ],
    );
    if (answer['leader_answered'] === false && invocation.options.json !== true)
      note('the scheduler that leads did not answer, so numbers are missing: ask again');
  });
}

const hourOf = (hour: JsonObject): readonly string[] => [
  String(numberField(hour, 'calls')),
  String(numberField(hour, 'errors')),
  hour['p50_ms'] === null ? '-' : `${numberField(hour, 'p50_ms')}/${numberField(hour, 'p95_ms')} ms`,
];

const wantedOf = (row: JsonObject): string => (row['wanted'] === null ? '?' : String(numberField(row, 'wanted')));

/** The sentence without the name and the state, which have columns of their own. */
function whyOf(row: JsonObject): string {
  const summary = textField(row, 'summary');
  const start = `${textField(row, 'name')} v${numberField(row, 'version')} is ${textField(row, 'state')}`;
  return summary.startsWith(`${start}: `) ? summary.slice(start.length + 2) : summary;
}
