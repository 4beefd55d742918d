// `longshore deploy`: describe, pack, upload, deploy (cli/deploy/), and say how to call the result.
import { Client } from '../client.ts';
import { resolveContext } from '../context.ts';
import type { GlobalOptions } from '../context.ts';
import { deployApp } from '../deploy/deploy.ts';
import { note, print, printJson } from '../print.ts';
import { programName } from '../program-name.ts';

type Env = Readonly<Record<string, string | undefined>>;

export async function runDeploy(
  target: string,
  flags: { readonly name?: string },
  options: GlobalOptions,
  env: Env,
): Promise<void> {
  const context = await resolveContext(options, env);
  const client = new Client(context);
  try {
    const deployed = await deployApp(client, { target, name: flags.name, reuse: false, onStep: note, env });
    if (options.json === true) {
      printJson(deployed);
      return;
    }
    print(`${deployed.name} version ${deployed.version} is deployed: ${deployed.url}`);
    print('');
    print('Call it:');
    const program = programName(env);
    const input = exampleInput(deployed.requiredInputs ?? []);
    const token = `-H "Authorization: Bearer $(${program} context token)"`;
    if (deployed.kind === 'asgi') {
      print(`  curl ${deployed.url} ${token}`);
    } else {
      print(`  curl -X POST ${deployed.url} ${token} -d '${input}'`);
      const kind = deployed.kind === 'endpoint' ? '' : ` --kind ${deployed.kind}`;
      print(`  ${program} invoke ${deployed.name}${kind}${input === '{}' ? '' : ` --data '${input}'`}`);
    }
    if (deployed.otherHandlers.length === 0) return;
    print('');
    print('Others in this file:');
    const file = target.slice(0, target.lastIndexOf(':'));
    for (const name of deployed.otherHandlers) print(`  ${program} deploy ${file}:${name}`);
  } finally {
    await client.close();
  }
}

/** Example JSON with a gap for each required input; Python names need no escaping. */
export const exampleInput = (required: readonly string[]): string =>
  `{${required.map((name) => `"${name}": …`).join(', ')}}`;
