// Answers of providers' programs: JSON that is checked field by field, with all mistakes in one error. Pure.
import { AppError } from '#shared/errors.ts';
import { isRecord } from '#shared/json.ts';
import type { Instance, InstanceState } from '../../domain/provisioning.ts';

const STATES: readonly InstanceState[] = ['pending', 'running', 'stopping', 'gone'];
export const MOST_INSTANCES = 10_000;
const MOST_PROBLEMS = 5;
const MOST_ID = 300;
const MOST_COST = 1_000_000;

/** Text of a program without the join tokens in it: `create` gets one, and a program may print what it runs. */
export const withoutTokens = (text: string): string => text.replaceAll(/ls[je]1\.[\w.-]+/g, '[join token]');

/** @throws AppError `provider_failed` */
export function createdOf(text: string, requestId: string): Instance {
  const problems: string[] = [];
  const answer = parsed(text, problems);
  const instance = instanceOf(answer, '', { requestId }, problems);
  if (instance !== undefined && instance.requestId !== requestId)
    problems.push(`requestId: must be ${requestId}, as it was given, or absent`);
  return checked(instance, problems, 'create');
}

/**
 * Instances of this installation in a listing. Those of another one are left out.
 * @throws AppError `provider_failed`: the whole listing counts for nothing then
 */
export function listedOf(text: string, installationId: string): readonly Instance[] {
  const problems: string[] = [];
  const answer = parsed(text, problems);
  const list = isRecord(answer) ? answer['instances'] : undefined;
  if (answer !== undefined && !Array.isArray(list)) problems.push('must be {"instances": [{…}, …]}');
  const all: readonly unknown[] = Array.isArray(list) ? list : [];
  if (all.length > MOST_INSTANCES) problems.push(`instances: more than ${MOST_INSTANCES}`);
  const found: Instance[] = [];
  for (const [index, one] of all.slice(0, MOST_INSTANCES).entries()) {
    const where = `instances[${index}].`;
    const tag = isRecord(one) ? one['installationId'] : undefined;
    // Without its tag nothing tells whose an instance is, and ours alone may be terminated.
    if (typeof tag !== 'string') problems.push(`${where}installationId: must be the text of its tag`);
    else if (tag === installationId) {
      const instance = instanceOf(one, where, {}, problems);
      if (instance !== undefined) found.push(instance);
    }
  }
  const ids = new Set(found.map(({ instanceId }) => instanceId));
  if (ids.size < found.length) problems.push('instances: an instanceId is there twice');
  return checked(found, problems, 'list');
}

function parsed(text: string, problems: string[]): unknown {
  if (text.trim() === '') problems.push('its standard output is empty; JSON is expected there');
  else {
    try {
      return JSON.parse(text) as unknown;
    } catch {
      problems.push(
        `its standard output is no JSON; it begins with ${JSON.stringify(withoutTokens(text.trim()).slice(0, 60))}`,
      );
    }
  }
  return undefined;
}

function checked<T>(value: T | undefined, problems: readonly string[], verb: string): T {
  if (value !== undefined && problems.length === 0) return value;
  const more = problems.length > MOST_PROBLEMS ? `; and ${problems.length - MOST_PROBLEMS} more` : '';
  throw new AppError('provider_failed', `${verb}: ${problems.slice(0, MOST_PROBLEMS).join('; ')}${more}`);
}

function instanceOf(
  value: unknown,
  where: string,
  given: { readonly requestId?: string },
  problems: string[],
): Instance | undefined {
  if (value === undefined) return undefined;
  if (!isRecord(value)) {
    problems.push(`${where === '' ? 'the answer' : where.slice(0, -1)}: must be an object`);
    return undefined;
  }
  const before = problems.length;
  const wrong = (name: string, must: string): void => void problems.push(`${where}${name}: ${must}`);
  const { instanceId, requestId = given.requestId, state = 'pending', address = null, hourlyCost = null } = value;
  const isId = (one: unknown): one is string => typeof one === 'string' && one !== '' && one.length <= MOST_ID;
  if (!isId(instanceId)) wrong('instanceId', `must be a text of at most ${MOST_ID} characters`);
  if (!isId(requestId)) wrong('requestId', 'must be the text of its tag');
  if (!STATES.includes(state as InstanceState)) wrong('state', `must be ${STATES.join(', ')}`);
  if (address !== null && typeof address !== 'string') wrong('address', 'must be a text or null');
  const isCost = hourlyCost === null || (typeof hourlyCost === 'number' && hourlyCost >= 0 && hourlyCost <= MOST_COST);
  if (!isCost) wrong('hourlyCost', 'must be a number that is not negative, or null');
  const endsAtMs = timeOf(value['endsAt'] ?? null);
  if (endsAtMs === undefined) wrong('endsAt', 'must be a time such as 2026-01-31T12:00:00Z, or null');
  if (problems.length > before) return undefined;
  return {
    instanceId: instanceId as string,
    requestId: requestId as string,
    state: state as InstanceState,
    address: address as string | null,
    hourlyCost: hourlyCost as number | null,
    endsAtMs: endsAtMs ?? null,
  };
}

/** @returns undefined: no time */
function timeOf(value: unknown): number | null | undefined {
  if (value === null) return null;
  const ms = typeof value === 'string' && /^\d{4}-\d\d-\d\dT/.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(ms) ? undefined : ms;
}
