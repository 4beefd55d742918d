// `longshore machine`: hosts admitted to a pool, present or not.
import { CliError } from '../errors.ts';
import { ageOf, coresOf, gpusOf, memoryOf } from '../format.ts';
import { listField, numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note, print, printJson } from '../print.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

/** Admits one machine and prints, once, what joins it. */
export async function runMachineCreate(pool: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await client.gateway('POST', '/machines', { poolName: pool });
    if (invocation.options.json === true) {
      printJson(answer);
      return;
    }
    const { machine } = answer;
    const id = typeof machine === 'object' && machine !== null ? textField(machine as JsonObject, 'id') : '';
    const url = textField(answer, 'agentUpstreamUrl');
    const token = textField(answer, 'agentUpstreamToken');
    print(
      `machine ${id} is admitted to the pool ${pool}. Its token joins it once, within 30 minutes, and is shown only here:`,
    );
    print('');
    print(`  ${token}`);
    print('');
    print('Run its agent there (Docker and Longshore installed):');
    print('');
    print(`  ${agentLine(url, token)}`);
    const address = hostOf(url);
    if (/^(127\.|localhost|\[::1\])/.test(address)) {
      note('');
      note(`${address} can be dialled from this machine only. For others, start the scheduler with`);
      note(
        'LONGSHORE_AGENT_ADDRESS=0.0.0.0:1995, and LONGSHORE_EXTERNAL_AGENT_ADDRESS at the host:port that they dial.',
      );
    }
  });
}

/** The line that runs the agent of a machine; the URL's scheme says whether the link is sealed, which the token settles. */
export function agentLine(upstreamUrl: string, token: string): string {
  return `LONGSHORE_SCHEDULER_ADDRESS=${hostOf(upstreamUrl)} LONGSHORE_JOIN_TOKEN=${token} longshore agent`;
}

export async function runMachineList(pool: string | undefined, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const query = pool === undefined ? '' : `?poolName=${encodeURIComponent(pool)}`;
    const answer = await client.gateway('GET', `/machines${query}`).catch((error: unknown) => {
      if (!(error instanceof CliError) || error.message !== 'pool not found') throw error;
      throw new CliError(`there is no pool ${pool ?? ''}: \`longshore pool list\` shows them`, { cause: error });
    });
    const nowMs = Date.now();
    showList(
      invocation,
      listField(answer, 'machines'),
      ['ID', 'POOL', 'STATUS', 'CPU', 'MEMORY', 'GPU', 'AGENT', 'SEEN'],
      (machine) => [
        textField(machine, 'id'),
        textField(machine, 'poolName'),
        textField(machine, 'status'),
        coresOf(numberField(machine, 'cpu')),
        memoryOf(numberField(machine, 'memory')),
        gpusOf(numberField(machine, 'gpuCount'), textField(machine, 'gpu')),
        textField(machine, 'agentVersion') || '-',
        seen(textField(machine, 'lastKeepalive'), nowMs),
      ],
    );
  });
}

export async function runMachineDelete(id: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    await client.gateway('DELETE', `/machines/${encodeURIComponent(id)}`).catch((error: unknown) => {
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
    showDone(invocation, { machineId: id, done: 'deleted' }, [`deleted machine ${id}`]);
  });
}

const seen = (time: string, nowMs: number): string => (time === '' ? 'never' : `${ageOf(time, nowMs)} ago`);

/** host:port of `grpcs://host:port`. */
function hostOf(url: string): string {
  return url.replace(/^[a-z]+:\/\//, '').replace(/\/+$/, '');
}
