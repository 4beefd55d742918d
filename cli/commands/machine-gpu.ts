// `longshore machine gpu`: the GPUs of one machine, and what an operator does to one of them.
import type { GpuAction } from '#shared/domain/gpus.ts';
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import { memoryOf } from '../format.ts';
import { listField, numberField, textField } from '../json.ts';
import { noSuch } from './no-such.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

/** A reset waits for its unit, which tries for two minutes. */
const RESET_TIMEOUT_MS = 150_000;

const DONE: Readonly<Record<GpuAction, (uuid: string) => string>> = {
  exclude: (uuid) => `GPU ${uuid} is given to nobody until it is returned; what runs on it goes on`,
  return: (uuid) => `GPU ${uuid} is probed, and serves when the probe has passed`,
  reset: (uuid) => `GPU ${uuid} was reset; it serves when a probe has passed`,
  forget: (uuid) => `GPU ${uuid} is forgotten`,
};

export async function runMachineGpuList(machineId: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await client
      .gateway('GET', `/machines/${encodeURIComponent(machineId)}/gpus`)
      .catch(unknown(client, machineId));
    const headings = ['UUID', 'MODEL', 'MEMORY', 'CC', 'BUS', 'NVLINK', 'STATE', 'WHY'];
    showList(invocation, listField(answer, 'gpus'), headings, (gpu) => [
      textField(gpu, 'uuid'),
      textField(gpu, 'model'),
      memoryOf(Math.round(numberField(gpu, 'memoryBytes') / 2 ** 20)),
      textField(gpu, 'computeCap'),
      textField(gpu, 'pciBusId'),
      numberField(gpu, 'nvlinkIsland') > 0 ? `island ${numberField(gpu, 'nvlinkIsland')}` : '-',
      textField(gpu, 'state'),
      textField(gpu, 'why'),
    ]);
  });
}

export async function runMachineGpuAction(
  action: GpuAction,
  machineId: string,
  uuid: string,
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const options = action === 'reset' ? { timeoutMs: RESET_TIMEOUT_MS } : {};
    await client
      .gateway('POST', `/machines/${encodeURIComponent(machineId)}/gpus`, { uuid, action }, options)
      .catch(unknown(client, machineId));
    showDone(invocation, { machineId, uuid, done: action }, [DONE[action](uuid)]);
  });
}

const unknown =
  (client: Client, machineId: string) =>
  async (error: unknown): Promise<never> => {
    if (!(error instanceof CliError) || error.message !== 'machine not found') throw error;
    throw await noSuch(client, 'machine', machineId, error);
  };
