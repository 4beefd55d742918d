// `longshore deployment`: versions of apps, their state and their scale.
import { shellWord } from '#shared/shell-word.ts';
import type { Client } from '../client.ts';
import type { DeploymentListFlags, DeploymentVerbFlags } from '../flags.ts';
import { ageOf, counted } from '../format.ts';
import { listField, numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note } from '../print.ts';
import { allVersions, deploymentsNamed, oneDeployment, shown } from './deployment-reference.ts';
import type { DeploymentFacts } from './deployment-reference.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

export async function runDeploymentList(flags: DeploymentListFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const filters = {
      ...(flags.name === undefined ? {} : { name: [flags.name] }),
      ...(flags.active === undefined ? {} : { active: [String(flags.active)] }),
    };
    const query = new URLSearchParams({ limit: String(flags.limit), filters: JSON.stringify(filters) });
    const answer = await client.gateway('GET', `/deployments?${query.toString()}`);
    const nowMs = Date.now();
    showList(
      invocation,
      listField(answer, 'deployments'),
      ['NAME', 'VERSION', 'KIND', 'ACTIVE', 'SERVES', 'CREATED', 'ID'],
      (deployment) => [
        textField(deployment, 'name'),
        `v${numberField(deployment, 'version')}`,
        textField(deployment, 'stubType').split('/', 1)[0] ?? '',
        deployment['active'] === true ? 'yes' : 'no',
        servesText(deployment),
        `${ageOf(textField(deployment, 'createdAt'), nowMs)} ago`,
        textField(deployment, 'id'),
      ],
    );
  });
}

/** Whether calls of the name reach a version, or why they do not. */
function servesText(deployment: JsonObject): string {
  if (deployment['serving'] === true) return 'yes';
  const rollout = textField(deployment, 'rollout');
  return rollout === '' || rollout === 'done' ? 'no' : rollout;
}

const VERBS = {
  start: { method: 'POST', suffix: '/start', done: 'started' },
  stop: { method: 'POST', suffix: '/stop', done: 'stopped' },
} as const;

/** Starts or stops the version that serves a name, one version, or all of them. */
export async function runDeploymentVerb(
  verb: keyof typeof VERBS,
  reference: string,
  flags: DeploymentVerbFlags,
  invocation: Invocation,
): Promise<void> {
  const { method, suffix, done } = VERBS[verb];
  await withClient(invocation, async (client) => {
    const meant =
      flags.allVersions === true ? await allVersions(client, reference) : [await oneDeployment(client, reference)];
    const changed: DeploymentFacts[] = [];
    for (const deployment of meant) {
      await client.gateway(method, `/deployments/${deployment.id}${suffix}`);
      changed.push(deployment);
    }
    showDone(
      invocation,
      changed.map(({ id, name, version }) => ({ id, name, version, done })),
      changed.map((deployment) => `${done} ${shown(deployment)}`),
    );
    if (verb === 'stop' && flags.allVersions !== true) await noteOthers(client, meant);
  });
}

/** Fixes the scale at `containers`; 0 returns the deployment to its autoscaler. */
export async function runDeploymentScale(reference: string, containers: number, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const deployment = await oneDeployment(client, reference);
    await client.gateway('POST', `/deployments/${deployment.id}/scale`, { containers });
    const sentence =
      containers === 0
        ? `${shown(deployment)} runs nothing until work comes`
        : `${shown(deployment)} keeps ${counted(containers, 'container')}`;
    showDone(invocation, { id: deployment.id, name: deployment.name, version: deployment.version, containers }, [
      sentence,
    ]);
    if (!deployment.active)
      note(`${shown(deployment)} is stopped: \`longshore deployment start ${shellWord(reference)}\` lets it run`);
  });
}

/**
 * Notes other active versions: stopping the one that serves does not
 * stop the others, which surprises people who think of a name.
 */
async function noteOthers(client: Client, meant: readonly DeploymentFacts[]): Promise<void> {
  const [deployment] = meant;
  if (deployment === undefined) return;
  const versions = await deploymentsNamed(client, deployment.name).catch(() => []);
  const others = versions.filter((one) => one.active && one.kind === deployment.kind && one.id !== deployment.id);
  if (others.length === 0) return;
  const list = others.map((one) => `v${one.version}`).slice(0, 5);
  const more = others.length > list.length ? ', …' : '';
  note(
    `still active: ${list.join(', ')}${more} (\`longshore deployment stop ${shellWord(deployment.name)} --all-versions\` for all of them)`,
  );
}
