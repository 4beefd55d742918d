// `longshore status`: the scheduler's health and its supply. Exit code 1 when it is not ready.
import { isRecord } from '#shared/json.ts';
import { Client } from '../client.ts';
import { resolveContext } from '../context.ts';
import type { GlobalOptions } from '../context.ts';
import { TokenKindError } from '../errors.ts';
import { ageOf, gpusOf, withNotes } from '../format.ts';
import { listField, numberField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { machineNotes } from './machine-notes.ts';
import { offeredCores, offeredMemory } from './machine-size.ts';
import { deploymentsOf, servedBy, shown } from './deployment-reference.ts';
import { tokenTypeOf } from './token.ts';
import { print, printJson, printTable } from '../print.ts';

type Env = Readonly<Record<string, string | undefined>>;

export async function runStatus(options: GlobalOptions, env: Env): Promise<number> {
  const client = new Client(await resolveContext(options, env));
  try {
    const health = await client.call('/api/v1/health', { anonymous: true });
    const warnings = warningsOf(health.body);
    const scheduler = { url: client.context.url, status: healthText(health.status, health.body), warnings };
    const [machines, deployments, containers] = await Promise.all([
      client.gateway('GET', '/machines').then((answer) => listField(answer, 'machines'), notForThisToken),
      client.gateway('GET', '/deployments?limit=1000').then((answer) => listField(answer, 'deployments')),
      client.gateway('GET', '/containers').then((answer) => listField(answer, 'containers')),
    ]);
    if (options.json === true) printJson({ scheduler, machines, deployments, containers });
    else show(scheduler, machines, deployments, containers, tokenTypeOf(client.context.token));
    return health.status === 200 ? 0 : 1;
  } finally {
    await client.close();
  }
}

/** A restricted token may read all but the machines. */
function notForThisToken(error: unknown): null {
  if (error instanceof TokenKindError) return null;
  throw error;
}

function show(
  scheduler: { readonly url: string; readonly status: string; readonly warnings: readonly string[] },
  machines: readonly JsonObject[] | null,
  deployments: readonly JsonObject[],
  containers: readonly JsonObject[],
  tokenType: string,
): void {
  const nowMs = Date.now();
  print(`scheduler ${scheduler.url}: ${scheduler.status}`);
  for (const warning of scheduler.warnings) print(`warning: ${warning}`);
  print('\nMachines');
  if (machines === null) {
    print('(not shown to a restricted token)');
  } else if (machines.length === 0 && tokenType.startsWith('workspace')) {
    print("(none of its own; shared machines are the administrator's to see)");
  } else {
    printTable(
      ['ID', 'POOL', 'STATUS', 'CPU', 'MEMORY', 'GPU'],
      machines.map((machine) => [
        textField(machine, 'id'),
        textField(machine, 'poolName'),
        withNotes(textField(machine, 'status'), textsField(machine, 'conditions')),
        offeredCores(machine),
        offeredMemory(machine),
        gpusOf(numberField(machine, 'gpuCount'), textField(machine, 'gpu')),
      ]),
    );
    for (const line of machineNotes(machines)) print(line);
  }
  print('\nDeployments');
  printTable(
    ['NAME', 'VERSION', 'ACTIVE', 'KIND', 'AGE'],
    deployments.map((deployment) => [
      textField(deployment, 'name'),
      `v${numberField(deployment, 'version')}`,
      deployment['active'] === true ? 'yes' : 'no',
      textField(deployment, 'stubType').split('/', 1)[0] ?? '',
      ageOf(textField(deployment, 'createdAt'), nowMs),
    ]),
  );
  const names = new Map(deploymentsOf({ deployments }).map((deployment) => [deployment.id, shown(deployment)]));
  print('\nContainers');
  printTable(
    ['ID', 'STATUS', 'DEPLOYMENT', 'MACHINE', 'AGE'],
    containers.map((container) => [
      textField(container, 'containerId'),
      textField(container, 'status'),
      servedBy(container, names),
      textField(container, 'machineId') || '-',
      ageOf(textField(container, 'startedAt') || textField(container, 'scheduledAt'), nowMs),
    ]),
  );
}

function warningsOf(body: Buffer): readonly string[] {
  try {
    const value: unknown = JSON.parse(body.toString('utf8'));
    return isRecord(value) ? textsField(value, 'warnings') : [];
  } catch {
    return [];
  }
}

function healthText(status: number, body: Buffer): string {
  if (status === 200) return 'ready';
  try {
    const value: unknown = JSON.parse(body.toString('utf8'));
    if (isRecord(value)) return textField(value, 'status') || `not ready (${status})`;
  } catch {
    // A proxy in between may answer anything.
  }
  return `not ready (${status})`;
}
