// `longshore deployment show`: one version of a deployment, its state, addresses and settings.
import { kindOf } from '#shared/domain/status.ts';
import type { Client } from '../client.ts';
import { painted, styleOfState } from '../colours.ts';
import { ageOf } from '../format.ts';
import { objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { print, printJson, withoutControls } from '../print.ts';
import { shownDeployment } from './deployment-reference.ts';
import type { DeploymentFacts } from './deployment-reference.ts';
import { configOf, settingRows, settingsOfRecord } from './deployment-settings.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';

/** Addresses by their form, as `urlType` of GetURL: two of the name, which stay, and two of the version. */
const FORMS = { name: 'name', nameHost: 'name-host', version: 'path', versionHost: 'host' } as const;
type Urls = Readonly<Record<keyof typeof FORMS, string>>;

export async function runDeploymentShow(reference: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const deployment = await shownDeployment(client, reference);
    const workspaceId = await client.workspaceId();
    const [record, urls, explained] = await Promise.all([
      client.rest(`/deployment/${workspaceId}/${deployment.id}`),
      urlsOf(client, deployment),
      // The rest is worth showing without it: a limited token may read the record alone.
      client.rest(`/explain/${workspaceId}/${deployment.id}`).catch((): JsonObject => ({})),
    ]);
    const config = configOf(record);
    const settings = settingsOfRecord(config);
    const facts = {
      id: deployment.id,
      name: deployment.name,
      version: deployment.version,
      kind: kindOf(textField(record, 'stub_type')),
      app: textField(objectField(record, 'app'), 'name'),
      state: textField(explained, 'state'),
      active: deployment.active,
      serving: deployment.serving,
      rollout: textField(objectField(record, 'rollout'), 'state'),
      rolloutWhy: textField(objectField(record, 'rollout'), 'why'),
      handler: textField(config, 'handler'),
      image: textField(objectField(config, 'runtime'), 'image_id'),
      createdAt: textField(record, 'created_at'),
    };
    if (invocation.options.json === true) return printJson({ ...facts, urls, settings });
    const state = facts.state || (facts.active ? 'active' : 'stopped');
    const rows: readonly (readonly [string, string])[] = [
      ['name', facts.name],
      ['version', `v${facts.version}${servingText(facts)}`],
      ['rollout', rolloutText(facts)],
      ['id', facts.id],
      ['kind', facts.kind],
      ['app', facts.app],
      ['state', painted(styleOfState(state), withoutControls(state), process.stdout)],
      ['handler', facts.handler],
      ['image', facts.image],
      ['created', `${ageOf(facts.createdAt, Date.now())} ago`],
      ...urlRows(urls, facts.serving),
      ...settingRows(settings),
    ];
    for (const [name, text] of rows)
      if (text !== '') print(`${name.padEnd(13)} ${name === 'state' ? text : withoutControls(text)}`);
  });
}

async function urlsOf(client: Client, { id, stubId }: DeploymentFacts): Promise<Urls> {
  const asked = Object.entries(FORMS).map(async ([form, urlType]) => {
    const answer = await client.gateway('GET', `/stubs/${stubId}/url?deploymentId=${id}&urlType=${urlType}`);
    return [form, textField(answer, 'url')] as const;
  });
  return Object.fromEntries(await Promise.all(asked)) as Urls;
}

const servingText = ({ serving, rollout }: { readonly serving: boolean; readonly rollout: string }): string =>
  serving ? ', which serves the name' : rollout === '' || rollout === 'done' ? '' : ` (rollout: ${rollout})`;

/** Why calls of the name do not reach a version; empty: they do, or it had no rollout. */
const rolloutText = ({
  serving,
  rollout,
  rolloutWhy,
}: Readonly<Record<'rollout' | 'rolloutWhy', string>> & { readonly serving: boolean }): string =>
  serving || rolloutWhy === '' || rollout === 'done' ? '' : `${rollout}: ${rolloutWhy}`;

/** Each address once: below an IP address there are no host forms, and a public version is reached by its name. */
function urlRows(urls: Urls, isServing: boolean): readonly (readonly [string, string])[] {
  const ofName = isServing ? [urls.name, urls.nameHost] : [];
  const ofVersion = [urls.version, urls.versionHost].filter((url) => !ofName.includes(url));
  return [
    ...[...new Set(ofName)].map((url, index) => [index === 0 ? 'url' : '', url] as const),
    ...[...new Set(ofVersion)].map((url, index) => [index === 0 ? 'this version' : '', url] as const),
  ];
}
