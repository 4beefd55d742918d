// `longshore run`: a function or a command in a container, once. Which of the two it is, and what the line names.
import { existsSync } from 'node:fs';
import { shellWord } from '#shared/shell-word.ts';
import { cpuMillicores, memoryMib } from '#shared/domain/quantities.ts';
import { messageOf } from '#shared/errors.ts';
import { jsonTextOf, withMembers } from '#shared/json-text.ts';
import { kindOf } from '../deploy/describe.ts';
import { describeApp } from '../deploy/describe.ts';
import type { HandlerDefinition } from '../deploy/describe.ts';
import { usageError } from '../errors.ts';
import type { RunFlags } from '../flags.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { readInput } from './invoke.ts';
import { runCommand } from './run-command.ts';
import { runFunction } from './run-function.ts';

/** Kinds whose handlers take inputs and give a result. */
const CALLED: ReadonlySet<string> = new Set(['function', 'schedule', 'endpoint', 'taskqueue']);

/**
 * Runs it. @returns the exit code
 * @param target - an app file with a handler; with --image the first word of the command
 * @param isCommand - the words stand behind `--`; the image of --image needs none, because it has no function
 */
export async function runOnce(
  target: string,
  { words, isCommand }: { readonly words: readonly string[]; readonly isCommand: boolean },
  flags: RunFlags,
  invocation: Invocation,
): Promise<number> {
  if (flags.image !== undefined) {
    refuseInputs(flags);
    const definition = { ...bare(flags.image), ...askedFor(flags) };
    return withClient(invocation, (client) => runCommand(client, { definition, command: [target, ...words] }, flags));
  }
  if (!/\.py(:|$)/.test(target) && !existsSync(target))
    throw usageError(
      `${target} is no app file: \`longshore run --image IMAGE -- ${shellWord(target)}${words.length > 0 ? ' …' : ''}\` runs it in a container of an image, as python:3.12-slim; \`longshore run app.py:work -- COMMAND\` in that of an app`,
    );
  const [first] = words;
  const isInput = words.length === 1 && first?.trimStart().startsWith('{') === true;
  if (words.length > 0 && !isInput && !isCommand)
    throw usageError(
      `inputs are a JSON object, such as '{"n": 3}', or --arg n=3, and not ${shellWord(words.join(' '))}; a command comes behind --: \`longshore run ${shellWord(target)} -- COMMAND\``,
    );
  const app = await describeApp(target, flags.root, invocation.env);
  const handler = { ...app.handler, ...askedFor(flags, app.handler) };
  if (words.length > 0 && !isInput) {
    refuseInputs(flags);
    const made = { definition: handler, root: app.root, command: words };
    return withClient(invocation, (client) => runCommand(client, made, flags));
  }
  const kind = kindOf(handler);
  if (!CALLED.has(kind))
    throw usageError(
      `${target} is of kind ${kind}, and no function to call: \`longshore deploy ${shellWord(target)}\` serves it, \`longshore run ${shellWord(target)} -- COMMAND\` runs a command in its image`,
    );
  const inputs = await inputsOf(isInput ? first : undefined, flags);
  return withClient(invocation, (client) =>
    runFunction(client, { handler, root: app.root, inputs }, invocation.options.json === true),
  );
}

function refuseInputs({ arg, data }: RunFlags): void {
  if (arg !== undefined || data !== undefined)
    throw usageError('--arg and --data are inputs of a function: a command has its words behind --');
}

/** The definition of a container that is made of an image alone. */
const bare = (image: string): HandlerDefinition => ({
  name: 'run',
  stubType: 'sandbox',
  appName: 'run',
  handler: '',
  imageId: image,
  pythonVersion: 'python3',
  image: { pythonVersion: 'python3', baseImage: image },
  cpu: 1000,
  memory: 1024,
  requiredInputs: null,
});

/** Fields that flags give instead of the definition. */
function askedFor(flags: RunFlags, handler?: HandlerDefinition): Readonly<Record<string, unknown>> {
  const { gpu, cpu, memory, pool, env = [], secret = [], volume = [] } = flags;
  const added = <T>(field: string, more: readonly T[]): Readonly<Record<string, unknown>> => {
    const own: unknown = handler?.[field];
    return more.length === 0 ? {} : { [field]: [...(Array.isArray(own) ? (own as unknown[]) : []), ...more] };
  };
  const count = Number(handler?.['gpuCount'] ?? 0);
  return {
    ...(gpu === undefined ? {} : { gpu, gpuCount: Math.max(1, count) }),
    ...(cpu === undefined ? {} : { cpu: quantity(cpuMillicores, '--cpu', cpu) }),
    ...(memory === undefined ? {} : { memory: quantity(memoryMib, '--memory', memory) }),
    ...(pool === undefined ? {} : { pool: { name: pool } }),
    ...added('env', env.map(variable)),
    ...added(
      'secrets',
      secret.map((name) => ({ name })),
    ),
    ...added('volumes', volume.map(mountOf)),
  };
}

function quantity(parse: (value: unknown) => number, flag: string, text: string): number {
  try {
    return parse(text);
  } catch (error) {
    throw usageError(`${flag}: ${messageOf(error)}`);
  }
}

function variable(text: string): string {
  if (!/^[A-Za-z_]\w*=/.test(text)) throw usageError(`--env takes NAME=VALUE, not ${JSON.stringify(text)}`);
  return text;
}

function mountOf(text: string): { readonly name: string; readonly mountPath: string } {
  const at = text.indexOf(':');
  if (at < 1 || at === text.length - 1)
    throw usageError(`--volume takes VOLUME:PATH, as models:/models, not ${JSON.stringify(text)}`);
  return { name: text.slice(0, at), mountPath: text.slice(at + 1) };
}

/** The inputs as one JSON object: those of `--data` or the argument, and each `--arg` over them. */
async function inputsOf(argument: string | undefined, { arg = [], data }: RunFlags): Promise<string> {
  if (argument !== undefined && data !== undefined) throw usageError('inputs are given twice: in --data, and as JSON');
  const given = (await readInput(argument ?? data ?? '{}')).toString('utf8');
  const set = Object.create(null) as Record<string, string>;
  for (const text of arg) {
    const at = text.indexOf('=');
    if (at < 1) throw usageError(`--arg takes NAME=VALUE, not ${JSON.stringify(text)}`);
    set[text.slice(0, at)] = jsonOf(text.slice(at + 1));
  }
  return arg.length === 0 ? given : withMembers(given, { set }, Infinity);
}

/** The text where it is JSON, else the text as a JSON string. @internal exported for its test */
export const jsonOf = (text: string): string => (jsonTextOf(text) === undefined ? JSON.stringify(text) : text);
