// `longshore deploy`: describe, pack, upload, deploy (cli/deploy/), and say how to call the result.
import { shellWord } from '#shared/shell-word.ts';
import { Client } from '../client.ts';
import { painted } from '../colours.ts';
import { resolveContext } from '../context.ts';
import type { GlobalOptions } from '../context.ts';
import { deployDefinition, prepareApp, prepareGiven, uploadCode } from '../deploy/deploy.ts';
import { knownProblems } from '../deploy/refusals.ts';
import { readTargets, soundTargets } from '../deploy/targets.ts';
import type { DeployItem, FailedItem } from '../deploy/targets.ts';
import { usageError } from '../errors.ts';
import type { DeployFlags } from '../flags.ts';
import { note, print, printError, printJson, step, withoutControls } from '../print.ts';
import { programName } from '../program-name.ts';
import { callLines } from './call-lines.ts';
import { waitForRollout } from './deploy-rollout.ts';
import { deployAll } from './deploy-all.ts';
import { runDeployPlan } from './deploy-plan.ts';

type Env = Readonly<Record<string, string | undefined>>;

export async function runDeploy(target: string, flags: DeployFlags, options: GlobalOptions, env: Env): Promise<number> {
  const context = await resolveContext(options, env);
  const targets = await readTargets(target, flags.root, env);
  const { items, failed, others, isFolder } = targets;
  if (flags.name !== undefined && (isFolder || items.length + failed.length > 1))
    throw usageError(`--name is for one handler: name it, as in ${items[0]?.target ?? 'app.py:handler'}`);
  const client = new Client(context);
  try {
    const isJson = options.json === true;
    if (flags.dryRun === true) return await runDeployPlan(client, targets, { name: flags.name, isJson });
    const refused = await refusalsOf(client, items, flags.name);
    const [only] = items;
    if (only === undefined || isFolder || items.length + failed.length > 1) {
      const sound = soundTargets(targets, refused);
      return await deployAll(client, sound, { isJson, now: flags.now === true, program: programName(env) });
    }
    for (const { error } of refused.slice(1)) printError(error.message);
    if (refused[0] !== undefined) throw refused[0].error;
    const objectId = await uploadCode(client, only.root, step);
    const read = { handler: only.handler, others, objectId };
    const made = { name: flags.name, reuse: false, now: flags.now === true, onStep: step };
    const begun = await deployDefinition(client, read, made);
    if (!isJson)
      print(
        `${painted('green', `${withoutControls(begun.name)} version ${begun.version} is deployed`, process.stdout)}: ${begun.url}`,
      );
    const rollout = await waitForRollout(client, begun, programName(env));
    const deployed = { ...begun, rollout };
    const exitCode = rollout.state === 'done' ? 0 : 1;
    if (isJson) printJson(deployed);
    if (isJson || exitCode !== 0) return exitCode;
    print('');
    print('Call it:');
    for (const line of callLines(deployed, programName(env))) print(`  ${line}`);
    if (deployed.otherHandlers.length === 0) return 0;
    print('');
    print('Others in this file:');
    const file = target.slice(0, target.lastIndexOf(':'));
    const ofRoot = flags.root === undefined ? '' : ` --root ${shellWord(flags.root)}`;
    for (const name of deployed.otherHandlers)
      print(`  ${programName(env)} deploy ${shellWord(`${file}:${name}`)}${ofRoot}`);
    return 0;
  } finally {
    await client.close();
  }
}

/** Everything that is known to be wrong with the handlers, before anything is uploaded, built or made. */
async function refusalsOf(
  client: Client,
  items: readonly DeployItem[],
  name: string | undefined,
): Promise<readonly FailedItem[]> {
  const found = items.map(async ({ target, handler }) => {
    const problems = await knownProblems(client, handler, name ?? handler.name);
    return problems.map((problem) => ({ target, ...problem }));
  });
  const problems = (await Promise.all(found)).flat();
  // A machine or a pool may still come. Where something else is corrected anyway, a person reads of all at once.
  return problems.every(({ mayCome }) => mayCome) ? [] : problems;
}

/** Longest definition on stdin. */
const MOST_DEFINITION_BYTES = 4 * 1024 * 1024;

/** Prepares a handler, or the definition on stdin, and prints the path by which its stub is called. */
export async function runPrepare(
  target: string,
  { root }: { readonly root?: string },
  options: GlobalOptions,
  env: Env,
): Promise<void> {
  const context = await resolveContext(options, env);
  const client = new Client(context);
  try {
    const prepared =
      target === '-'
        ? await prepareGiven(client, {
            text: await definitionText(),
            ...(root === undefined ? {} : { root }),
            onStep: note,
          })
        : await prepareApp(client, { target, root, onStep: note, env });
    const path = `/${prepared.kind}/id/${prepared.stubId}`;
    if (options.json === true) printJson({ ...prepared, path });
    else print(`${prepared.name} is ready: ${context.url}${path}`);
  } finally {
    await client.close();
  }
}

async function definitionText(): Promise<string> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of process.stdin) {
    parts.push(Buffer.from(part as Uint8Array));
    size += parts.at(-1)?.byteLength ?? 0;
    if (size > MOST_DEFINITION_BYTES) throw usageError('the definition on stdin has more than 4 MiB');
  }
  return Buffer.concat(parts).toString('utf8');
}
