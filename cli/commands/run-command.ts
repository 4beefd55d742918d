// `longshore run … -- COMMAND`: a sandbox, the command in it, and its end.
// Invariant: the container goes with the command, however that ends. Where this process is killed, nobody uses the
// container any more, and it ends by its time to live.
import { messageOf } from '#shared/errors.ts';
import type { Client } from '../client.ts';
import { prepareDefinition } from '../deploy/deploy.ts';
import type { HandlerDefinition } from '../deploy/describe.ts';
import { CliError } from '../errors.ts';
import type { RunFlags } from '../flags.ts';
import { textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note } from '../print.ts';
import { executeIn } from './container-exec.ts';
import { interrupted } from './interrupt.ts';
import { explained, sayReasons } from './waiting.ts';

/** Seconds without use until the container ends by itself. */
const TTL_SECONDS = 120;
/** The scheduler waits ten minutes for a container to run. */
const RUNNING_MS = 640_000;
/** Fields of a handler that say how a container of it is made. */
const KEPT = [
  'image',
  'imageId',
  'pythonVersion',
  'cpu',
  'memory',
  'gpu',
  'gpuCount',
  'pool',
  'env',
  'secrets',
  'volumes',
  'blockNetwork',
  'allowList',
] as const;

export async function runCommand(
  client: Client,
  {
    definition,
    root,
    command,
  }: { readonly definition: HandlerDefinition; readonly root?: string; readonly command: readonly string[] },
  flags: Pick<RunFlags, 'terminal'>,
): Promise<number> {
  const { stubId } = await prepareDefinition(client, sandboxOf(definition), root, note);
  const { signal, release } = interrupted();
  let containerId = '';
  try {
    containerId = await created(client, stubId);
    if (!(await isRunning(client, containerId, signal))) return 130;
    // The command has the signals now: the first goes to the program, a second one leaves it.
    release();
    return await executeIn(client, containerId, command, {
      terminal: flags.terminal === true,
      leavesAtSecond: true,
    });
  } finally {
    release();
    if (containerId !== '') await remove(client, containerId);
  }
}

function sandboxOf(definition: HandlerDefinition): HandlerDefinition {
  const kept = Object.fromEntries(KEPT.flatMap((name) => (name in definition ? [[name, definition[name]]] : [])));
  return {
    ...kept,
    name: 'run',
    appName: textField(definition, 'appName') || 'run',
    stubType: 'sandbox',
    handler: '',
    keepWarmSeconds: TTL_SECONDS,
    requiredInputs: null,
  };
}

async function created(client: Client, stubId: string): Promise<string> {
  const made = await client.gateway('POST', '/pods', { stubId });
  return textField(made, 'containerId');
}

/** @returns false: the signal came first. @throws CliError with the reason when it does not start */
async function isRunning(client: Client, containerId: string, signal: AbortSignal): Promise<boolean> {
  const path = `/gateway/pods/${encodeURIComponent(containerId)}/connect`;
  const over = new AbortController();
  const stopped = new Promise<'stopped'>((resolve) => {
    signal.addEventListener('abort', () => resolve('stopped'), { once: true });
  });
  void sayReasons(() => explained(client, containerId), note, over.signal);
  try {
    const connecting = client.restCall('POST', path, {}, RUNNING_MS);
    // A person who leaves does not wait for the answer.
    connecting.catch(() => undefined);
    const answer: JsonObject | 'stopped' = await Promise.race([connecting, stopped]);
    if (answer === 'stopped') return false;
    if (answer['ok'] !== true) throw new CliError(textField(answer, 'errorMsg') || 'the container did not start');
    return true;
  } finally {
    over.abort();
  }
}

async function remove(client: Client, containerId: string): Promise<void> {
  await client.gateway('POST', `/containers/${encodeURIComponent(containerId)}/stop`).catch((error: unknown) => {
    // A container that ended by itself is not found.
    if (/not found/i.test(messageOf(error))) return;
    note(`container ${containerId} was not stopped (${messageOf(error)}): it ends by itself in ${TTL_SECONDS} s`);
  });
}
