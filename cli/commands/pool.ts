// `longshore pool`: machines that placement treats as one supply, and how they are offered.
import { POOL_DEFAULTS } from '#shared/api/pools.ts';
import { CliError, usageError } from '../errors.ts';
import type { PoolFlags, PoolOwnerFlags } from '../flags.ts';
import { coresOf, memoryOf } from '../format.ts';
import { listField, numberField, objectField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note, print, printJson, printTable } from '../print.ts';
import { WHOSE_POOLS, noPool, unknownPool } from './pool-words.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import type { Client } from '../client.ts';

type Settings = Readonly<Record<string, number | boolean | string | null>>;

export async function runPoolCreate(name: string, flags: PoolFlags, invocation: Invocation): Promise<void> {
  const settings = settingsOf(flags);
  await withClient(invocation, async (client) => {
    // The create call answers the same for a new pool and for an existing one with equal settings, so look first.
    const before = await client.gateway('GET', pathOf(name)).catch(noPool);
    const answer = await client.gateway('POST', '/pools', { name, settings }).catch((error: unknown) => {
      if (!(error instanceof CliError) || !error.message.startsWith('the pool is there already')) throw error;
      throw new CliError(
        `pool ${name} is there already with other settings: \`longshore pool set ${name}${flagsFor(settings)}\` changes them`,
        { cause: error },
      );
    });
    const isNew = before === undefined;
    const done = isNew ? 'created' : 'unchanged';
    const made = objectField(objectField(answer, 'pool'), 'settings');
    showDone(invocation, { pool: name, done, settings: made }, [
      `pool ${name} ${isNew ? 'is made' : 'was there already'}: ${supplyOf(name, textField(made, 'provider'))}`,
    ]);
  });
}

/** Where machines of the pool come from. */
const supplyOf = (name: string, provider: string): string =>
  provider === ''
    ? `\`longshore machine create --pool ${name}\` admits machines to it`
    : `provider ${provider} makes machines for it when work waits; \`longshore pool show ${name}\` says how it goes`;

/** Changes the settings that the flags name; the others keep their values. */
export async function runPoolSet(
  name: string,
  { workspace, ...flags }: PoolFlags & PoolOwnerFlags,
  invocation: Invocation,
): Promise<void> {
  const settings = settingsOf(flags);
  if (Object.keys(settings).length === 0)
    throw usageError('say what to change, such as --cpu-overcommit 2 (`longshore pool set --help`)');
  await withClient(invocation, async (client) => {
    const body = { settings, ...(workspace === undefined ? {} : { workspaceId: workspace }) };
    const answer = await client.gateway('PATCH', pathOf(name), body).catch(unknownPool(name));
    showPool(invocation, answer);
  });
}

export async function runPoolShow(name: string, { workspace }: PoolOwnerFlags, invocation: Invocation): Promise<void> {
  const query = workspace === undefined ? '' : `?workspaceId=${encodeURIComponent(workspace)}`;
  await withClient(invocation, async (client) => {
    showPool(invocation, await client.gateway('GET', `${pathOf(name)}${query}`).catch(unknownPool(name)));
  });
}

const settingsOf = (flags: PoolFlags): Settings =>
  Object.fromEntries(Object.entries(flags).map(([name, value]) => [name, value === 'default' ? null : value]));

/** The flags by which a person types these settings, each with a space before it. */
export const flagsFor = (settings: Settings): string =>
  Object.entries(settings)
    .map(([name, value]) => {
      const flag = name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
      return ` --${flag} ${value === null ? 'default' : shown(value)}`;
    })
    .join('');

const pathOf = (name: string): string => `/pools/${encodeURIComponent(name)}`;

function showPool(invocation: Invocation, answer: JsonObject): void {
  const pool = objectField(answer, 'pool');
  if (invocation.options.json === true) {
    printJson(pool);
    return;
  }
  printTable(['SETTING', 'VALUE'], settingRows(pool));
  for (const line of growthLines(pool)) print(line);
  const file = textField(pool, 'declaredIn');
  if (file !== '')
    print(
      `\ndeclared in ${file}: change it there, and restart a scheduler that has this file, or send its process SIGHUP`,
    );
}

/** Why the pool grows or does not, what its machines cost, and the remedy. */
export function growthLines(pool: JsonObject): readonly string[] {
  const growth = objectField(pool, 'growth');
  const [text, step, until, verdict] = ['text', 'step', 'until', 'verdict'].map((name) => textField(growth, name));
  if (text === undefined || text === '') return [];
  const word = verdict === 'too_young' ? 'at' : 'until';
  const stuck = listField(growth, 'stuck');
  const more = numberField(growth, 'stuckCount') - stuck.length;
  return [
    `\n${text}${until === '' ? '' : `, ${word} ${until}`}`,
    ...(step === '' ? [] : [`next: ${step}`]),
    ...stuck.flatMap((machine) => [`\n${textField(machine, 'text')}`, `next: \`${textField(machine, 'step')}\``]),
    ...(more > 0 ? [`and ${more} more machines that cannot go on`] : []),
  ];
}

/** A setting without a value follows the machine or the scheduler. */
export function settingRows(pool: JsonObject): readonly (readonly string[])[] {
  const follows: Readonly<Record<string, string>> = {
    cpuWorkOnGpuMachines: `${shown(pool['effectiveCpuWorkOnGpuMachines'])} (the default: by LONGSHORE_CPU_WORK_ON_GPU_POOLS of the scheduler)`,
    reservedCpuCores: 'a tenth of the cores, at most one',
    reservedMemoryMib: '5 % of the memory',
    hourlyCost: 'as the provider lists it, else not known',
    expectedGpus: 'nothing is expected',
    registryMirror: 'none',
    labels: 'none',
    provider: 'none: machines are admitted by hand',
    hourlyBudget: 'none: maxMachines is the bound',
    machineGpuModel: 'none',
    machineGpuMemoryMib: 'not known',
    machineCpuCores: 'not set',
    machineMemoryMib: 'not set',
  };
  return Object.entries(objectField(pool, 'settings')).map(([name, value]) => [
    name,
    value === null ? (follows[name] ?? '-') : shown(value),
  ]);
}

/** Settings that differ from their defaults, and whether a file declares the pool. */
export function settingsInShort(pool: JsonObject): string {
  const defaults: JsonObject = POOL_DEFAULTS;
  const said = Object.entries(objectField(pool, 'settings'))
    .filter(([name, value]) => value !== defaults[name])
    .map(([name, value]) => `${name} ${shown(value)}`);
  const declared = textField(pool, 'declaredIn') === '' ? [] : ['declared in a file'];
  return [...said, ...declared].join(', ') || '-';
}

function shown(value: unknown): string {
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  return typeof value === 'number' || typeof value === 'string' ? String(value) : '-';
}

export async function runPoolDelete(name: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    await client.gateway('DELETE', pathOf(name)).catch(async (error: unknown) => {
      if (!(error instanceof CliError) || !error.message.startsWith('pool must have no machines'))
        return unknownPool(name)(error);
      const there = await machinesIn(client, name).catch(() => '');
      throw new CliError(
        `pool ${name} has machines${there === '' ? '' : `: ${there}`}. \`longshore machine delete ID\` takes each away (drain first what is in service)`,
        { cause: error },
      );
    });
    showDone(invocation, { pool: name, done: 'deleted' }, [`deleted pool ${name}`]);
  });
}

/** The pool's machines, including those that were admitted and never joined. */
async function machinesIn(client: Client, pool: string): Promise<string> {
  const answer = await client.gateway('GET', `/machines?poolName=${encodeURIComponent(pool)}`);
  return listField(answer, 'machines')
    .map((machine) => {
      const status = textField(machine, 'status');
      return `${textField(machine, 'id')} (${status === 'pending' ? 'admitted, never came' : status})`;
    })
    .join(', ');
}

export async function runPoolList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const pools = listField(await client.gateway('GET', '/pools'), 'pools');
    showList(
      invocation,
      pools,
      ['NAME', 'STATUS', 'GPU', 'WORKERS', 'CPU FREE', 'MEMORY FREE', 'GPU FREE', 'CONTAINERS', 'SETTINGS'],
      (pool) => {
        const state = objectField(pool, 'state');
        const pending = numberField(state, 'pendingContainers');
        return [
          textField(pool, 'name'),
          textField(state, 'status') || '-',
          textField(pool, 'gpu') || '-',
          String(numberField(state, 'availableWorkers')),
          coresOf(numberField(state, 'freeCpu')),
          memoryOf(numberField(state, 'freeMemory')),
          String(numberField(state, 'freeGpu')),
          `${numberField(state, 'runningContainers')}${pending > 0 ? `, ${pending} pending` : ''}`,
          settingsInShort(pool),
        ];
      },
    );
    if (invocation.options.json !== true)
      for (const pool of pools)
        for (const reason of textsField(objectField(pool, 'state'), 'reasons'))
          print(`${textField(pool, 'name')}: ${reason}`);
    if (pools.length === 0 && invocation.options.json !== true) note(`this token sees none (${WHOSE_POOLS})`);
  });
}
