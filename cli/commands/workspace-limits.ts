// `longshore workspace limits`: the limits of a workspace. Everybody
// sees their own; the administrator sees and changes all.
import { isRecord } from '#shared/json.ts';
import { usageError } from '../errors.ts';
import type { WorkspaceLimitsFlags } from '../flags.ts';
import { objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { print, printJson, printTable } from '../print.ts';
import { shown as creditsText } from './credit.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { onlyAdmin } from './workspace.ts';
import { workspaceIdOf } from './workspace-reference.ts';

const GROUPS = [
  'concurrency',
  'stub',
  'tasks',
  'timeouts',
  'requests',
  'rate',
  'counts',
  'bytes',
  'retention',
] as const;

const MICROS_PER_CENT = 10_000;

export async function runWorkspaceLimits(
  reference: string | undefined,
  flags: WorkspaceLimitsFlags,
  invocation: Invocation,
): Promise<void> {
  const change = changeOf(flags.set ?? []);
  await withClient(invocation, async (client) => {
    const id = await workspaceIdOf(client, reference);
    const path = `/workspace/${encodeURIComponent(id)}/limits`;
    const limits =
      change === undefined
        ? await client.rest(path).catch(onlyAdmin)
        : await client.restCall('PUT', path, change).catch(onlyAdmin);
    if (invocation.options.json === true) {
      printJson(limits);
      return;
    }
    printTable(['LIMIT', 'VALUE', 'USED'], rowsOf(limits));
    print(`\nbilling: ${billingText(limits)}`);
  });
}

/** How the workspace is billed, and its credits. A scheduler of the release before tells none. */
export function billingText(limits: JsonObject): string {
  const billing = objectField(limits, 'billing');
  const mode = textField(billing, 'mode') || 'postpaid';
  const cents = billing['credits_cents'];
  return typeof cents === 'number' ? `${mode}, ${creditsText(cents * MICROS_PER_CENT)} available` : mode;
}

/** Rows of settable name, value and, where it is counted, usage. */
export function rowsOf(limits: JsonObject): readonly (readonly string[])[] {
  const usage = objectField(limits, 'usage');
  const used: Readonly<Record<string, unknown>> = {
    'concurrency.gpu_limit': usage['gpu'],
    'concurrency.cpu_millicore_limit': usage['cpu_millicores'],
    'concurrency.memory_mib_limit': usage['memory_mib'],
    'concurrency.container_limit': usage['containers'],
  };
  return GROUPS.flatMap((group) =>
    Object.entries(objectField(limits, group)).map(([name, value]) => {
      const counted = isRecord(value) ? value : undefined;
      const limit = counted === undefined ? value : counted['limit'];
      return [`${group}.${name}`, shown(limit, 'none'), shown(counted?.['used'] ?? used[`${group}.${name}`], '')];
    }),
  );
}

const shown = (value: unknown, none: string): string => (typeof value === 'number' ? String(value) : none);

/** @returns undefined when no flag changes a limit. The scheduler validates names and values. */
export function changeOf(said: readonly string[]): Record<string, Record<string, number | null>> | undefined {
  if (said.length === 0) return undefined;
  const change: Record<string, Record<string, number | null>> = {};
  for (const text of said) {
    const [, group, name, value] = /^([a-z_]+)\.([a-z_]+)=([0-9]{1,15}|default)$/.exec(text) ?? [];
    if (group === undefined || name === undefined || value === undefined) {
      throw usageError(`--set ${text}: it must be GROUP.NAME=NUMBER, such as concurrency.gpu_limit=4, or …=default`);
    }
    if (group === 'retention') {
      throw usageError(
        `--set ${text}: how long things are kept is the installation's (LONGSHORE_TASK_DAYS, LONGSHORE_LOG_DAYS)`,
      );
    }
    if (group === 'timeouts' || group === 'requests') {
      throw usageError(`--set ${text}: ${group} are the same for every workspace, and not set here`);
    }
    change[group] = { ...change[group], [name]: value === 'default' ? null : Number(value) };
  }
  return change;
}
