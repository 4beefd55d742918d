// `longshore machine`: hosts admitted to a pool, present or not.
import { machineNotes } from './machine-notes.ts';
import { createHash } from 'node:crypto';
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import { ageOf, coresOf, gpusOf, memoryOf, withNotes } from '../format.ts';
import type { JsonObject } from '../json.ts';
import { listField, numberField, objectField, textField, textsField } from '../json.ts';
import { note, print, printJson } from '../print.ts';
import { unknownPool } from './pool-words.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

/** Admits one machine, and prints its join token and the command that uses it. The token is shown only here. */
export async function runMachineCreate(pool: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await admitted(client, pool);
    if (invocation.options.json === true) {
      printJson(answer);
      return;
    }
    const id = textField(objectField(answer, 'machine'), 'id');
    const url = textField(answer, 'agentUpstreamUrl');
    const token = textField(answer, 'agentUpstreamToken');
    print(
      `machine ${id} is admitted to the pool ${pool}. Its token joins it once, within 30 minutes, and is shown only here:`,
    );
    print('');
    print(`  ${token}`);
    print('');
    const install = answer.installLine;
    print(
      install === null
        ? 'Run its agent there (Docker and Longshore installed):'
        : 'Run this there (Linux with systemd and Docker; it installs the agent as a service):',
    );
    print('');
    print(`  ${install ?? agentLine(url, token)}`);
    const http = install === null ? '' : 'LONGSHORE_HTTP_ADDRESS=0.0.0.0:1994 (with a certificate: docs/https.md), ';
    noteLoopback(
      hostOf(url),
      `${http}LONGSHORE_AGENT_ADDRESS=0.0.0.0:1995, and LONGSHORE_EXTERNAL_AGENT_ADDRESS at the host:port that they dial.`,
    );
  });
}

/**
 * Admits a machine to a pool.
 * @returns the scheduler's answer, and the line that installs the agent; null when the scheduler gives out no release
 * @internal exported for its test
 */
export async function admitted(
  client: Pick<Client, 'gateway' | 'call' | 'context'>,
  pool: string,
): Promise<JsonObject & { readonly installLine: string | null }> {
  const answer = await client.gateway('POST', '/machines', { poolName: pool });
  const text = (name: string): string => textField(answer, name);
  const line = await installLine(
    client,
    text('agentUpstreamUrl'),
    text('agentUpstreamBranch'),
    text('agentUpstreamToken'),
  );
  return { ...answer, installLine: line ?? null };
}

/**
 * Notes that the printed address is loopback, which other machines cannot reach.
 * @param settings - the scheduler settings that make it reachable
 */
function noteLoopback(address: string, settings: string): void {
  if (!/^(127\.|localhost|\[::1\])/.test(address)) return;
  note('');
  note(`${address} can be dialled from this machine only. For others, start the scheduler with`);
  note(settings);
}

/** Prints the command that upgrades the agent of a joined machine. */
export async function runMachineUpgrade(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const line = await installLine(client, client.context.url, '');
    if (line === undefined) {
      throw new CliError('this scheduler has no release to give out: docs/machines.md says how it gets one');
    }
    if (invocation.options.json === true) printJson({ line });
    else {
      print('Run this on each machine; its containers go on:');
      print('');
      print(`  ${line}`);
      noteLoopback(
        new URL(client.context.url).host,
        'LONGSHORE_HTTP_ADDRESS=0.0.0.0:1994 and a certificate (docs/https.md), and name it by its own address: longshore --url https://HOST:1994 machine upgrade',
      );
    }
  });
}

/**
 * The command that installs the agent. The command checks the script against the hash that this client saw; the script
 * checks the release. The token and the shell's proxy settings go through a pipe, so that process lists show neither.
 * @returns undefined when the scheduler has no release to give out
 */
async function installLine(
  client: Pick<Client, 'call' | 'context'>,
  upstreamUrl: string,
  channel: string,
  token?: string,
): Promise<string | undefined> {
  const path = `/install/agent${channel === '' ? '' : `?channel=${encodeURIComponent(channel)}`}`;
  const script = await client.call(path, { anonymous: true });
  if (script.status !== 200) return undefined;
  const base = new URL(client.context.url);
  // A loopback address in this context works only here: other machines use the host that serves the agent port.
  const upstream = new URL(upstreamUrl.replace(/^grpcs?:/, 'http:'));
  if (/^(127\.|localhost$|\[::1\]$)/.test(base.hostname)) base.hostname = upstream.hostname;
  const from = base.origin;
  const digest = createHash('sha256').update(script.body).digest('hex');
  const fetched = `f=$(mktemp) && curl -fsSL '${from}${path}' -o "$f" && echo "${digest}  $f" | sha256sum -c --quiet -`;
  if (token === undefined) return `${fetched} && sudo sh "$f" install --from '${from}' </dev/null`;
  // sudo drops the variables that name proxies; as arguments, their passwords would appear in process lists.
  const given = `{ echo '${token}'; env | grep -iE '^(https?|no)_proxy='; }`;
  return `${fetched} && ${given} | sudo sh "$f" install --from '${from}' --scheduler '${hostOf(upstreamUrl)}'`;
}

/**
 * The command that runs a machine's agent. The URL's scheme says whether the link uses TLS, which the token decides.
 */
export function agentLine(upstreamUrl: string, token: string): string {
  return `LONGSHORE_SCHEDULER_ADDRESS=${hostOf(upstreamUrl)} LONGSHORE_JOIN_TOKEN=${token} longshore agent`;
}

export async function runMachineList(pool: string | undefined, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const query = pool === undefined ? '' : `?poolName=${encodeURIComponent(pool)}`;
    const answer = await client.gateway('GET', `/machines${query}`).catch(unknownPool(pool ?? ''));
    const nowMs = Date.now();
    const machines = listField(answer, 'machines');
    showList(invocation, machines, ['ID', 'POOL', 'STATUS', 'CPU', 'MEMORY', 'GPU', 'AGENT', 'SEEN'], (machine) => [
      textField(machine, 'id'),
      textField(machine, 'poolName'),
      withNotes(textField(machine, 'status'), textsField(machine, 'conditions')),
      coresOf(numberField(machine, 'cpu')),
      memoryOf(numberField(machine, 'memory')),
      gpusOf(numberField(machine, 'gpuCount'), textField(machine, 'gpu')),
      textField(machine, 'agentVersion') || '-',
      seen(textField(machine, 'lastKeepalive'), nowMs),
    ]);
    if (invocation.options.json !== true) for (const line of machineNotes(machines)) print(line);
  });
}

export async function runMachineDelete(
  id: string,
  flags: { readonly force?: boolean },
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const force = flags.force === true;
    await client
      .gateway('DELETE', `/machines/${encodeURIComponent(id)}${force ? '?force=true' : ''}`)
      .catch((error: unknown) => {
        if (!(error instanceof CliError)) throw error;
        if (error.message.includes('drain it first')) {
          throw new CliError(
            `machine ${id} still takes work: \`longshore worker drain ${id}\`, then delete it when nothing runs there`,
            {
              cause: error,
            },
          );
        }
        if (error.message === 'machine not found') {
          throw new CliError(`there is no machine ${id}: \`longshore machine list\` shows them`, { cause: error });
        }
        throw error;
      });
    showDone(invocation, { machineId: id, done: 'deleted' }, [
      force ? `machine ${id} is told to stop everything, and is gone within a minute` : `deleted machine ${id}`,
    ]);
  });
}

const seen = (time: string, nowMs: number): string => (time === '' ? 'never' : `${ageOf(time, nowMs)} ago`);

/** host:port of `grpcs://host:port`. */
function hostOf(url: string): string {
  return url.replace(/^[a-z]+:\/\//, '').replace(/\/+$/, '');
}
