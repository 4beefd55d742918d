// `longshore machine`: hosts admitted to a pool, present or not.
import { machineNotes } from './machine-notes.ts';
import { offeredCores, offeredMemory } from './machine-size.ts';
import { createHash } from 'node:crypto';
import { labelsText } from '#shared/domain/labels.ts';
import type { Labels } from '#shared/domain/labels.ts';
import { agentLine, hostOf, installerPath, joinLine, upgradeLine } from '#shared/join-line.ts';
import type { Client } from '../client.ts';
import { CliError, usageError } from '../errors.ts';
import { ageOf, gpusOf, withNotes } from '../format.ts';
import type { JsonObject } from '../json.ts';
import { listField, numberField, objectField, textField, textsField } from '../json.ts';
import { note, print, printJson } from '../print.ts';
import { versionsIn } from '../upgrade/plan.ts';
import { runPoolUpgrade } from './machine-upgrade.ts';
import type { GivenOut, UpgradeFlags } from './machine-upgrade.ts';
import { unknownPool } from './pool-words.ts';
import { noSuch } from './no-such.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { machineIdOf } from './whole-ids.ts';

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
  const [upstream, channel] = [text('agentUpstreamUrl'), text('agentUpstreamBranch')];
  const digest = await scriptSha256(client, channel);
  const place = { baseUrl: client.context.url, upstream, channel, scriptSha256: digest };
  return { ...answer, installLine: digest === null ? null : joinLine(place, text('agentUpstreamToken')) };
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

/** Prints the command that upgrades the agent of a joined machine; with a pool, upgrades its machines one by one. */
export async function runMachineUpgrade(flags: UpgradeFlags, invocation: Invocation): Promise<void> {
  if (flags.pool !== undefined) return runPoolUpgrade(flags.pool, flags, invocation, givenOut);
  if (flags.run !== undefined || flags.to !== undefined) throw usageError('--run and --to need --pool');
  await withClient(invocation, async (client) => {
    const { line } = await givenOut(client);
    if (line === '') {
      throw new CliError('this scheduler has no release to give out: docs/machines.md says how it gets one');
    }
    if (invocation.options.json === true) printJson({ line });
    else {
      print('Run this on each machine; its containers go on:');
      print('');
      print(`  ${line}`);
      noteLoopback(
        new URL(client.context.url).host,
        'LONGSHORE_HTTP_ADDRESS=0.0.0.0:1994 and a certificate (docs/https.md), and log in at its own address: longshore login https://HOST:1994',
      );
    }
  });
}

async function givenOut(client: Pick<Client, 'call' | 'context'>): Promise<GivenOut> {
  const { url } = client.context;
  const script = await installer(client, '');
  if (script === null) return { line: '', versions: [] };
  const place = { baseUrl: url, upstream: new URL(url).host, channel: '', scriptSha256: sha256Of(script) };
  return { line: upgradeLine(place), versions: versionsIn(script.toString('utf8')) };
}

/** The hash of the installer's script, as this client saw it; null: the scheduler has no release to give out. */
async function scriptSha256(client: Pick<Client, 'call'>, channel: string): Promise<string | null> {
  const script = await installer(client, channel);
  return script === null ? null : sha256Of(script);
}

async function installer(client: Pick<Client, 'call'>, channel: string): Promise<Buffer | null> {
  const script = await client.call(installerPath(channel), { anonymous: true });
  return script.status === 200 ? Buffer.from(script.body) : null;
}

const sha256Of = (script: Buffer): string => createHash('sha256').update(script).digest('hex');

export async function runMachineList(pool: string | undefined, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const query = pool === undefined ? '' : `?poolName=${encodeURIComponent(pool)}`;
    const answer = await client.gateway('GET', `/machines${query}`).catch(unknownPool(pool ?? ''));
    const nowMs = Date.now();
    const machines = listField(answer, 'machines');
    showList(
      invocation,
      machines,
      ['ID', 'POOL', 'STATUS', 'CPU', 'MEMORY', 'GPU', 'LABELS', 'AGENT', 'SEEN'],
      (machine) => [
        textField(machine, 'id'),
        textField(machine, 'poolName'),
        withNotes(textField(machine, 'status'), textsField(machine, 'conditions')),
        offeredCores(machine),
        offeredMemory(machine),
        gpusOf(numberField(machine, 'gpuCount'), textField(machine, 'gpu')),
        labelsText(objectField(machine, 'labels') as Labels) || '-',
        textField(machine, 'agentVersion') || '-',
        seen(textField(machine, 'lastKeepalive'), nowMs),
      ],
    );
    if (invocation.options.json !== true) for (const line of machineNotes(machines)) print(line);
  });
}

export async function runMachineDelete(
  reference: string,
  flags: { readonly force?: boolean },
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = await machineIdOf(client, reference);
    const force = flags.force === true;
    await client
      .gateway('DELETE', `/machines/${encodeURIComponent(id)}${force ? '?force=true' : ''}`)
      .catch(async (error: unknown) => {
        if (!(error instanceof CliError)) throw error;
        if (error.message.includes('drain it first')) {
          throw new CliError(
            `machine ${id} still takes work: \`longshore worker drain ${id}\`, then delete it when nothing runs there`,
            {
              cause: error,
            },
          );
        }
        if (error.message === 'machine not found') throw await noSuch(client, 'machine', id, error);
        throw error;
      });
    showDone(invocation, { machineId: id, done: 'deleted' }, [
      force ? `machine ${id} is told to stop everything, and is gone within a minute` : `deleted machine ${id}`,
    ]);
  });
}

const seen = (time: string, nowMs: number): string => (time === '' ? 'never' : `${ageOf(time, nowMs)} ago`);
