// `longshore deployment delete`: a name with all its versions, or one version. Source: decision 0363.
import { shellWord } from '#shared/shell-word.ts';
import type { Client } from '../client.ts';
import { CliError, usageError } from '../errors.ts';
import type { DeploymentDeleteFlags } from '../flags.ts';
import { counted } from '../format.ts';
import { numberField } from '../json.ts';
import { note } from '../print.ts';
import { asksYes } from '../typed.ts';
import { allVersions, deploymentsNamed, isOneVersion, oneDeployment, shown } from './deployment-reference.ts';
import type { DeploymentFacts } from './deployment-reference.ts';
import { showDone, withClient } from './run.ts';
import type { Invocation } from './run.ts';

export async function runDeploymentDelete(
  reference: string,
  { version, yes }: DeploymentDeleteFlags,
  invocation: Invocation,
): Promise<void> {
  const isOne = isOneVersion(reference);
  if (isOne && version !== undefined)
    throw usageError(`--version goes with a name, and ${reference} is one version already`);
  const one = isOne ? reference : version === undefined ? undefined : `${reference}/v${version}`;
  await withClient(invocation, async (client) => {
    const meant = one === undefined ? await allVersions(client, reference) : [await oneDeployment(client, one)];
    if (one === undefined && yes !== true) await confirm(reference, meant);
    // Calls go on to the version that serves until the others are gone.
    const cancelled = new Map<string, number>();
    for (const { id } of meant.toSorted((a, b) => Number(a.serving) - Number(b.serving)))
      cancelled.set(id, numberField(await client.gateway('DELETE', `/deployments/${id}`), 'cancelledTasks'));
    const cancelledOf = ({ id }: DeploymentFacts): number => cancelled.get(id) ?? 0;
    showDone(
      invocation,
      meant.map((one) => ({
        id: one.id,
        name: one.name,
        version: one.version,
        done: 'deleted',
        cancelledTasks: cancelledOf(one),
      })),
      meant.map((one) => {
        const tasks = cancelledOf(one);
        return `deleted ${shown(one)}${tasks === 0 ? '' : `, and cancelled ${counted(tasks, 'task')}`}`;
      }),
    );
    const [deleted] = meant;
    if (one !== undefined && deleted !== undefined) await noteServing(client, deleted);
  });
}

async function confirm(name: string, versions: readonly DeploymentFacts[]): Promise<void> {
  const what = `${name} has ${counted(versions.length, 'version')}: ${listed(versions)}`;
  if (!process.stdin.isTTY) {
    if (versions.length === 1) return;
    const last = versions[0]?.version ?? 1;
    throw usageError(
      `${what}; without a terminal, say --yes to delete all of them, or --version ${last} for one: nothing was deleted`,
    );
  }
  note(what);
  if (!(await asksYes('delete all of them?'))) throw new CliError('nothing was deleted');
}

/** `v3 (serves), v2, v1`. */
function listed(versions: readonly DeploymentFacts[]): string {
  const first = versions.slice(0, 5).map((one) => `v${one.version}${one.serving ? ' (serves)' : ''}`);
  return [...first, ...(versions.length > first.length ? ['…'] : [])].join(', ');
}

/** Says where calls of the name go now that the version is deleted, where others are left. */
async function noteServing(client: Client, { name, kind }: DeploymentFacts): Promise<void> {
  const left = await deploymentsNamed(client, `${kind}/${name}`).catch(() => []);
  if (left.length === 0) return;
  const serving = left.find((one) => one.serving);
  if (serving === undefined) {
    note(
      `no version of ${name} serves now: ${listed(left)} never started. \`longshore deploy\` makes the next, \`longshore deployment delete ${shellWord(name)}\` deletes what is left`,
    );
    return;
  }
  const stopped = serving.active
    ? ''
    : `, which is stopped: \`longshore deployment start ${shellWord(`${name}/v${serving.version}`)}\``;
  note(`calls of ${name} reach v${serving.version} now${stopped}`);
}
