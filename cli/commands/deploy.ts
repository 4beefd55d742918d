// `longshore deploy`: describe, pack, upload, deploy (cli/deploy/), and say how to call the result.
import { Client } from '../client.ts';
import { resolveContext } from '../context.ts';
import type { GlobalOptions } from '../context.ts';
import { deployApp, prepareApp } from '../deploy/deploy.ts';
import type { Deployed } from '../deploy/deploy.ts';
import { note, print, printJson } from '../print.ts';
import { programName } from '../program-name.ts';

type Env = Readonly<Record<string, string | undefined>>;

export async function runDeploy(
  target: string,
  flags: { readonly name?: string; readonly root?: string },
  options: GlobalOptions,
  env: Env,
): Promise<void> {
  const context = await resolveContext(options, env);
  const client = new Client(context);
  try {
    const deployed = await deployApp(client, { target, ...flags, name: flags.name, reuse: false, onStep: note, env });
    if (options.json === true) {
      printJson(deployed);
      return;
    }
    print(`${deployed.name} version ${deployed.version} is deployed: ${deployed.url}`);
    print('');
    print('Call it:');
    for (const line of callLines(deployed, programName(env))) print(`  ${line}`);
    if (deployed.otherHandlers.length === 0) return;
    print('');
    print('Others in this file:');
    const file = target.slice(0, target.lastIndexOf(':'));
    const ofRoot = flags.root === undefined ? '' : ` --root ${flags.root}`;
    for (const name of deployed.otherHandlers) print(`  ${programName(env)} deploy ${file}:${name}${ofRoot}`);
  } finally {
    await client.close();
  }
}

/** Prepares a handler, and prints the path by which its stub is called. */
export async function runPrepare(
  target: string,
  { root }: { readonly root?: string },
  options: GlobalOptions,
  env: Env,
): Promise<void> {
  const context = await resolveContext(options, env);
  const client = new Client(context);
  try {
    const prepared = await prepareApp(client, { target, root, onStep: note, env });
    const path = `/${prepared.kind}/id/${prepared.stubId}`;
    if (options.json === true) printJson({ ...prepared, path });
    else print(`${prepared.name} is ready: ${context.url}${path}`);
  } finally {
    await client.close();
  }
}

/** Ways to call what was deployed. */
export function callLines(
  deployed: Pick<Deployed, 'hostUrl' | 'isPublic' | 'kind' | 'name' | 'requiredInputs' | 'url'>,
  program: string,
): string[] {
  const { hostUrl, isPublic, kind, name, url } = deployed;
  const token = isPublic ? '' : ` -H "Authorization: Bearer $(${program} context token)"`;
  if (kind === 'asgi') {
    const webSockets = `WebSockets: ${url.replace(/^http/, 'ws')}`;
    const lines = [`curl ${url}${token}`, isPublic ? webSockets : `${webSockets}, with the same header`];
    // Below an address there are no names, and the URL is the other one.
    if (hostUrl === null || new URL(hostUrl).pathname !== '/') return lines;
    const page = `a browser: ${hostUrl}/`;
    return [
      ...lines,
      isPublic ? page : `${page}?auth_token=TOKEN, where TOKEN is what \`${program} context token\` prints`,
    ];
  }
  const input = exampleInput(deployed.requiredInputs ?? []);
  const ofKind = kind === 'endpoint' ? '' : ` --kind ${kind}`;
  return [
    `curl -X POST ${url}${token} -d '${input}'`,
    `${program} invoke ${name}${ofKind}${input === '{}' ? '' : ` --data '${input}'`}`,
  ];
}

/** Example JSON with a gap for each required input; Python names need no escaping. */
export const exampleInput = (required: readonly string[]): string =>
  `{${required.map((name) => `"${name}": …`).join(', ')}}`;
