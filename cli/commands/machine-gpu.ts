// `longshore machine gpu`: the GPUs of one machine or of all, and what an operator does to one of them.
import type { GpuAction } from '#shared/domain/gpus.ts';
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import { ageOf, memoryOf } from '../format.ts';
import { listField, numberField, objectField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { pagesOf } from '../pages.ts';
import { note } from '../print.ts';
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

/** Lists the GPUs of all machines: who holds each, how much of it is used, and what brings back those that are out. */
export async function runGpuMap(pool: string | undefined, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const gpus: JsonObject[] = [];
    const ofPool = pool === undefined ? '' : `pool=${encodeURIComponent(pool)}&`;
    for await (const page of pagesOf('the GPUs', (cursor) => client.rest(`/gpu?${ofPool}limit=1000&cursor=${cursor}`)))
      gpus.push(...listField(page, 'data'));
    const headings = ['POOL', 'MACHINE', '#', 'MODEL', 'STANDING', 'USE', 'MEMORY', 'POWER', 'HEAT', 'HELD BY'];
    showList(invocation, gpus, headings, (gpu) => [
      textField(gpu, 'pool_name'),
      textField(gpu, 'machine_id').slice(0, 8),
      String(numberField(gpu, 'index')),
      textField(gpu, 'model'),
      standingOf(gpu),
      known(gpu, 'utilization_pct', (value) => `${Math.round(value)} %`),
      known(gpu, 'memory_used_bytes', (value) => memoryOf(Math.round(value / 2 ** 20))),
      known(gpu, 'power_watts', (value) => `${value} W`),
      known(gpu, 'temperature_celsius', (value) => `${value} °C`),
      gpu['holder'] === null ? '-' : textField(objectField(gpu, 'holder'), 'name') || '-',
    ]);
    if (invocation.options.json === true) return;
    for (const gpu of gpus.filter((one) => textField(one, 'why') !== '')) {
      note(`${textField(gpu, 'uuid')} is ${textField(gpu, 'state')}: ${textField(gpu, 'why')}`);
      for (const [at, step] of textsField(gpu, 'steps').entries()) note(`  ${at + 1}. ${step}`);
    }
  });
}

const standingOf = (gpu: JsonObject): string =>
  textField(gpu, 'idle_since') === ''
    ? textField(gpu, 'standing')
    : `leased, idle for ${ageOf(textField(gpu, 'idle_since'), Date.now())}`;

/** A number that may be unknown. */
function known(gpu: JsonObject, name: string, shown: (value: number) => string): string {
  const value = gpu[name];
  return typeof value === 'number' ? shown(value) : '-';
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
