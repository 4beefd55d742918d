// `longshore provider`: programs that make machines for pools, for the installation's administrator.
import { CliError, notFound } from '../errors.ts';
import { EXIT } from '../exit-codes.ts';
import { ageOf, counted, durationOf } from '../format.ts';
import { listField, numberField, objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note, print, printJson, printTable, withoutControls } from '../print.ts';
import { showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { onlyAdmin } from './workspace.ts';

/** Longest deadline of a provider, and some time for the answer. */
const CHECK_TIMEOUT_MS = 630_000;
const VERBS = ['create', 'list', 'terminate'] as const;
/** Pools that a cell names. */
const MOST_POOLS = 3;

export async function runProviderList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await client.rest('/provider').catch(onlyAdmin);
    const providers = listField(answer, 'data');
    const nowMs = Date.now();
    showList(
      invocation,
      providers,
      ['NAME', 'KIND', 'POOLS', 'MACHINES', 'CREATE', 'LIST', 'TERMINATE', 'BACK-OFF'],
      (provider) => [
        textField(provider, 'name'),
        provider['known'] === false ? 'unknown' : textField(provider, 'kind'),
        poolsOf(provider),
        machinesOf(objectField(provider, 'machines')),
        ...VERBS.map((verb) => callOf(provider, verb, nowMs)),
        backOffOf(provider, nowMs),
      ],
    );
    if (invocation.options.json === true) return;
    for (const line of providers.flatMap((provider) => troublesOf(provider))) print(line);
    if (providers.length === 0)
      note('this installation has no providers: LONGSHORE_PROVIDERS_FILE of the scheduler names them');
  });
}

function poolsOf(provider: JsonObject): string {
  const names = listField(provider, 'pools').map((pool) => textField(pool, 'name'));
  const more = numberField(provider, 'pool_count') - MOST_POOLS;
  if (names.length === 0) return '-';
  return `${names.slice(0, MOST_POOLS).join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}

/** `3, 1 pending`: machines in all, and those that are on their way or leave. */
function machinesOf(counts: JsonObject): string {
  const [pending, leaving] = [numberField(counts, 'pending'), numberField(counts, 'leaving')];
  const notes = [...(pending > 0 ? [`${pending} pending`] : []), ...(leaving > 0 ? [`${leaving} leaving`] : [])];
  return [String(pending + leaving + numberField(counts, 'joined')), ...notes].join(', ');
}

function callOf(provider: JsonObject, verb: string, nowMs: number): string {
  const call = listField(provider, 'calls').find((one) => textField(one, 'verb') === verb);
  if (call === undefined) return 'never';
  const ago = `${ageOf(textField(call, 'called_at'), nowMs)} ago`;
  if (call['ok'] === true) return `ok ${ago}`;
  const failures = numberField(call, 'failures');
  return `failed ${ago}${failures > 1 ? ` (${failures} in a row)` : ''}`;
}

/** The latest back-off of its pools. */
function backOffOf(provider: JsonObject, nowMs: number): string {
  const ends = listField(provider, 'pools').map((pool) => textField(pool, 'back_off_until'));
  const last = ends.toSorted().at(-1) ?? '';
  return last === '' ? '-' : `for ${durationOf(new Date(nowMs).toISOString(), last, nowMs)}`;
}

/** A line for each thing that needs a person. */
function troublesOf(provider: JsonObject): readonly string[] {
  const name = textField(provider, 'name');
  const calls = listField(provider, 'calls').filter((call) => call['ok'] === false);
  return [
    ...(provider['known'] === false
      ? [`${name}: the providers file of the scheduler does not name it, so no machines are made or ended`]
      : []),
    ...calls.map((call) => `${name}: ${textField(call, 'failure')}`),
  ];
}

/** @returns the exit code: 1 when the provider cannot be relied on */
export async function runProviderCheck(name: string, invocation: Invocation): Promise<number> {
  return await withClient(invocation, async (client) => {
    const check = await client
      .restCall('POST', `/provider/${encodeURIComponent(name)}/check`, undefined, CHECK_TIMEOUT_MS)
      .catch((error: unknown) => {
        if (!(error instanceof CliError) || error.answerCode !== 'provider_not_found') return onlyAdmin(error);
        throw notFound(`${error.answerText}; \`longshore provider list\` shows all`, error);
      });
    if (invocation.options.json === true) printJson(check);
    else showCheck(name, check);
    return check['ok'] === true ? EXIT.ok : EXIT.failed;
  });
}

function showCheck(name: string, check: JsonObject): void {
  const [problem, cure] = [textField(check, 'problem'), textField(check, 'cure')];
  const listed = listField(check, 'listed');
  const all = numberField(check, 'instances');
  const where = `on ${textField(check, 'host')}, ${numberField(check, 'took_ms')} ms`;
  if (typeof check['instances'] === 'number') {
    print(`${name}: list gave ${counted(all, 'instance')} of this installation (${where})`);
    if (listed.length > 0)
      printTable(['INSTANCE', 'STATE', 'ADDRESS', 'COST', 'ENDS', 'MACHINE'], listed.map(instanceRow));
    if (all > listed.length) print(`and ${all - listed.length} more`);
  }
  for (const machine of listField(check, 'missing'))
    print(
      `missing: ${textField(machine, 'instance_id')} (machine ${textField(machine, 'machine_id')}, pool ${textField(machine, 'pool_name')})`,
    );
  if (problem === '') return;
  print(`${name}: ${problem} (on ${textField(check, 'host')})`);
  const lines = withoutControls(textField(check, 'output')).split('\n');
  // The problem has a last line already.
  if (lines.length > 1) for (const line of ['its last lines:', ...lines.map((said) => `  ${said}`)]) print(line);
  if (cure !== '') print(`mend: ${cure}`);
}

function instanceRow(instance: JsonObject): readonly string[] {
  const { hourly_cost: cost } = instance;
  return [
    textField(instance, 'instance_id'),
    textField(instance, 'state'),
    textField(instance, 'address') || '-',
    typeof cost === 'number' ? String(cost) : '-',
    textField(instance, 'ends_at') || '-',
    textField(instance, 'machine_id') || 'none: it is ended after two listings and a minute',
  ];
}
