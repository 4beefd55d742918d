// `longshore deployment rollback`: calls of a name reach an older version again.
import { shellWord } from '#shared/shell-word.ts';
import { note } from '../print.ts';
import { shown } from './deployment-reference.ts';
import { readVersions, rollbackTarget, versionNamed } from './deployment-versions.ts';
import { showDone, withClient } from './run.ts';
import type { Invocation } from './run.ts';

export async function runDeploymentRollback(
  name: string,
  version: string | undefined,
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const versions = await readVersions(client, name);
    const to = version === undefined ? rollbackTarget(versions) : versionNamed(versions, version);
    await client.restCall('POST', `/deployment/${await client.workspaceId()}/rollback/${to.id}`);
    const { serving } = versions;
    const same = serving.id === to.id;
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
