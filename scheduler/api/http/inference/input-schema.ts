// Checks a value by the part of JSON Schema that says what a request must look like: types, required fields, bounds,
// lists of values. Patterns and references are left to the model: a schema that a workspace wrote must not cost the
// scheduler more time than a look at the value. Pure.
import { isRecord } from '#shared/json.ts';
import type { JsonObject } from './fields.ts';

export interface SchemaProblem {
  /** JSON pointer to the value. */
  readonly pointer: string;
  readonly text: string;
}

const MOST_DEPTH = 32;

/** The first part of the value that the schema does not allow. */
export function schemaProblem(schema: unknown, value: unknown, pointer = '', depth = 0): SchemaProblem | undefined {
  if (!isRecord(schema) || depth > MOST_DEPTH) return undefined;
  const at = (text: string): SchemaProblem => ({ pointer, text });
  const types = schema['type'];
  const allowed = (Array.isArray(types) ? types : [types]).filter((one) => typeof one === 'string');
  if (allowed.length > 0 && !allowed.some((type) => isOfType(value, type)))
    return at(`must be ${allowed.join(' or ')}`);
  const values = schema['enum'];
  if (Array.isArray(values) && !values.some((one) => isSame(one, value)))
    return at(
      `must be one of ${values
        .map((one) => JSON.stringify(one))
        .join(', ')
        .slice(0, 300)}`,
    );
  if ('const' in schema && !isSame(schema['const'], value)) return at(`must be ${JSON.stringify(schema['const'])}`);
  if (typeof value === 'number') return boundProblem(schema, value, 'minimum', 'maximum', '', at);
  if (typeof value === 'string') return boundProblem(schema, value.length, 'minLength', 'maxLength', ' characters', at);
  if (Array.isArray(value)) {
    const bound = boundProblem(schema, value.length, 'minItems', 'maxItems', ' entries', at);
    if (bound !== undefined) return bound;
    for (const [index, item] of (value as readonly unknown[]).entries()) {
      const problem = schemaProblem(schema['items'], item, `${pointer}/${index}`, depth + 1);
      if (problem !== undefined) return problem;
    }
    return undefined;
  }
  return isRecord(value) ? objectProblem(schema, value, pointer, depth) : undefined;
}

function objectProblem(
  schema: JsonObject,
  value: JsonObject,
  pointer: string,
  depth: number,
): SchemaProblem | undefined {
  const { required, properties } = schema;
  for (const name of Array.isArray(required) ? (required as readonly unknown[]) : []) {
    if (typeof name === 'string' && !Object.hasOwn(value, name))
      return { pointer: `${pointer}/${escaped(name)}`, text: 'must be given' };
  }
  const known = isRecord(properties) ? properties : {};
  for (const [name, item] of Object.entries(value)) {
    const place = `${pointer}/${escaped(name)}`;
    if (Object.hasOwn(known, name)) {
      const problem = schemaProblem(known[name], item, place, depth + 1);
      if (problem !== undefined) return problem;
    } else if (schema['additionalProperties'] === false)
      return { pointer: place, text: 'is not a field of this model' };
  }
  return undefined;
}

function boundProblem(
  schema: JsonObject,
  size: number,
  least: string,
  most: string,
  unit: string,
  at: (text: string) => SchemaProblem,
): SchemaProblem | undefined {
  const [low, high] = [schema[least], schema[most]];
  if (typeof low === 'number' && size < low)
    return at(`must have at least ${low}${unit}`.replace(/have (at least \S+)$/, 'be $1'));
  if (typeof high === 'number' && size > high)
    return at(`must have at most ${high}${unit}`.replace(/have (at most \S+)$/, 'be $1'));
  return undefined;
}

function isOfType(value: unknown, type: string): boolean {
  switch (type) {
    case 'integer':
      return Number.isInteger(value);
    case 'null':
      return value === null;
    case 'array':
      return Array.isArray(value);
    case 'object':
      return isRecord(value);
    default:
      return typeof value === type;
  }
}

const isSame = (one: unknown, other: unknown): boolean =>
  one === other || JSON.stringify(one) === JSON.stringify(other);
const escaped = (name: string): string => name.replaceAll('~', '~0').replaceAll('/', '~1');
