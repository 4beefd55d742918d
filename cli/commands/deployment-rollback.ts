// `longshore deployment rollback`: calls of a name reach an older version again.
import { shellWord } from '#shared/shell-word.ts';
import type { Client } from '../client.ts';
import { CliError, usageError } from '../errors.ts';
import type { DeploymentRollbackFlags } from '../flags.ts';
import { objectField, textField } from '../json.ts';
import { note } from '../print.ts';
import { asksYes } from '../typed.ts';
import { shown } from './deployment-reference.ts';
import type { DeploymentFacts } from './deployment-reference.ts';
import { readVersions, rollbackTarget, versionNamed } from './deployment-versions.ts';
import { showDone, withClient } from './run.ts';
import type { Invocation } from './run.ts';

export async function runDeploymentRollback(
  name: string,
  version: string | undefined,
  { yes }: DeploymentRollbackFlags,
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const versions = await readVersions(client, name);
    const to = version === undefined ? rollbackTarget(versions) : versionNamed(versions, version);
    const { serving } = versions;
    const same = serving.id === to.id;
    if (!same && to.rollout === 'failed' && yes !== true) await confirm(client, to);
    await client.restCall('POST', `/deployment/${await client.workspaceId()}/rollback/${to.id}`);
    showDone(invocation, { id: to.id, name: to.name, version: to.version, from: serving.version }, [
      same
        ? `calls of ${to.name} stay with v${to.version}`
        : `calls of ${to.name} reach v${to.version} now, no longer v${serving.version}`,
    ]);
    if (!same && serving.active)
      note(
        `${shown(serving)} is still active: \`longshore deployment stop ${shellWord(`${to.name}/v${serving.version}`)}\` stops it`,
      );
  });
}

/** Asks before calls move to a version that did not start. */
async function confirm(client: Client, to: DeploymentFacts): Promise<void> {
  const record = await client.rest(`/deployment/${await client.workspaceId()}/${to.id}`);
  const why = textField(objectField(record, 'rollout'), 'why');
  const what = `the rollout of ${shown(to)} failed${why === '' ? '' : `: ${why}`}`;
  if (!process.stdin.isTTY)
    throw usageError(`${what}; without a terminal, say --yes to move calls of ${to.name} there: nothing was changed`);
  note(what);
  if (!(await asksYes(`move calls of ${to.name} there all the same?`))) throw new CliError('nothing was changed');
}
