// `longshore credit` and `longshore usage`: what a workspace may spend on models, and has spent.
import type { Client } from '../client.ts';
import { usageError } from '../errors.ts';
import type { CreditGrantFlags, UsageFlags } from '../flags.ts';
import { listField, numberField, objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { print, printJson, printTable } from '../print.ts';
import { showDone, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { onlyAdmin } from './workspace.ts';
import { workspaceIdOf } from './workspace-reference.ts';

const pathOf = async (client: Client, reference: string | undefined): Promise<string> =>
  `/credit/${encodeURIComponent(await workspaceIdOf(client, reference))}`;

export async function runCreditShow(reference: string | undefined, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const account = await client.rest(await pathOf(client, reference)).catch(onlyAdmin);
    if (invocation.options.json === true) {
      printJson(account);
      return;
    }
    const rows = [
      ['mode', textField(account, 'mode')],
      ['balance', amountOf(account, 'balance_micros')],
      ['held', amountOf(account, 'held_micros')],
      ['available', amountOf(account, 'available_micros', 'not bounded')],
      ['spent', `${amountOf(account, 'spent_micros')} in ${textField(account, 'month')}`],
      ['spend limit', amountOf(account, 'spend_limit_micros', 'none')],
    ] as const;
    for (const [name, value] of rows) print(`${`${name}:`.padEnd(13)}${value}`);
  });
}

export async function runCreditGrant(
  reference: string,
  micros: number,
  flags: CreditGrantFlags,
  invocation: Invocation,
): Promise<void> {
  const body = {
    amount_micros: flags.take === true ? -micros : micros,
    ...(flags.key === undefined ? {} : { key: flags.key }),
    ...(flags.note === undefined ? {} : { note: flags.note }),
  };
  await withClient(invocation, async (client) => {
    const answer = await client.restCall('POST', `${await pathOf(client, reference)}/grant`, body).catch(onlyAdmin);
    const balance = `the balance is ${amountOf(objectField(answer, 'account'), 'balance_micros')}`;
    const verb = flags.take === true ? 'took back' : 'granted';
    const done = answer['granted'] === true ? `${verb} ${shown(micros)}` : 'a grant with this key was there before';
    showDone(invocation, answer, [`${done}; ${balance}`]);
  });
}

export async function runCreditMode(reference: string, mode: string, invocation: Invocation): Promise<void> {
  if (mode !== 'prepaid' && mode !== 'postpaid') throw usageError(`mode ${mode}: it must be prepaid or postpaid`);
  await change(reference, { mode }, `the workspace is ${mode}`, invocation);
}

export async function runCreditLimit(reference: string, micros: number | null, invocation: Invocation): Promise<void> {
  const text = micros === null ? 'no spend limit' : `a spend limit of ${shown(micros)} a month`;
  await change(reference, { spend_limit_micros: micros }, `the workspace has ${text}`, invocation);
}

async function change(reference: string, body: JsonObject, done: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const account = await client.restCall('PUT', await pathOf(client, reference), body).catch(onlyAdmin);
    showDone(invocation, account, [`${done}; its balance is ${amountOf(account, 'balance_micros')}`]);
  });
}

const GROUP_FIELDS: Readonly<Record<string, string>> = {
  day: 'day',
  model: 'model',
  token: 'token_id',
  app: 'app_id',
  deployment: 'deployment',
  gpu_model: 'gpu_model',
};

export async function runUsage(flags: UsageFlags, invocation: Invocation): Promise<void> {
  const groups = (flags.by ?? '').split(',').filter((group) => group !== '');
  const odd = groups.find((group) => !(group in GROUP_FIELDS));
  if (odd !== undefined)
    throw usageError(
      `--by ${odd}: it must be any of ${Object.keys(GROUP_FIELDS).join(', ')}, with commas between them`,
    );
  const query = new URLSearchParams({
    by: groups.join(','),
    ...(flags.from === undefined ? {} : { from: flags.from }),
    ...(flags.to === undefined ? {} : { to: flags.to }),
  });
  await withClient(invocation, async (client) => {
    const id = await workspaceIdOf(client, flags.workspace);
    const usage = await client.rest(`/usage/${encodeURIComponent(id)}?${query.toString()}`).catch(onlyAdmin);
    if (invocation.options.json === true) {
      printJson(usage);
      return;
    }
    const fields = groups.map((group) => GROUP_FIELDS[group] ?? group);
    const rowOf = (sums: JsonObject): readonly string[] => [
      String(numberField(sums, 'requests')),
      String(numberField(sums, 'prompt_tokens')),
      String(numberField(sums, 'completion_tokens')),
      amountOf(sums, 'cost_micros'),
      (numberField(sums, 'container_seconds') / 3600).toFixed(2),
      (numberField(sums, 'gpu_seconds') / 3600).toFixed(2),
    ];
    const rows = groups.length === 0 ? [] : listField(usage, 'data');
    printTable(
      [
        ...groups.map((group) => group.toUpperCase()),
        'REQUESTS',
        'PROMPT',
        'COMPLETION',
        'COST',
        'CONTAINER H',
        'GPU H',
      ],
      [
        ...rows.map((row) => [...fields.map((field) => textField(row, field) || '-'), ...rowOf(row)]),
        [...fields.map((_, at) => (at === 0 ? 'total' : '')), ...rowOf(objectField(usage, 'total'))],
      ],
    );
    if (usage['truncated'] === true) print('more rows than 10000: name a shorter range, or fewer groups');
  });
}

function amountOf(of: JsonObject, field: string, none = '-'): string {
  const value = of[field];
  return typeof value === 'number' ? shown(value) : none;
}

/** Micro-units as units with at least two decimals. @internal exported for its test */
export function shown(micros: number): string {
  const [whole, part] = [Math.trunc(Math.abs(micros) / 1_000_000), Math.abs(micros) % 1_000_000];
  const decimals = String(part)
    .padStart(6, '0')
    .replace(/0{1,4}$/, '');
  return `${micros < 0 ? '-' : ''}${whole}.${decimals}`;
}
