// Settings: one TypeBox schema per daemon, read once from the environment and an
// optional file, frozen, passed down. A single error reports every mistake by name.
import { readFileSync } from 'node:fs';
import type { Static, TObject, TSchema } from 'typebox';
import { Value } from 'typebox/value';
import { StartupError, messageOf } from './errors.ts';
import { nearSetting } from './settings.ts';

/** Extra facts on a setting's schema (`Type.String({ secret: true, ... })`). */
export interface SettingFacts {
  readonly secret?: boolean;
  readonly description?: string;
  readonly default?: unknown;
}

/**
 * Reads settings whose names are the schema's keys. A secret `X` may come as a file named by `X_FILE`. An empty
 * variable counts as absent.
 * @throws StartupError `bad_config` naming every wrong or unknown `LONGSHORE_…` key for which `known` has no entry
 */
export function loadConfig<T extends TObject>(
  schema: T,
  env: Readonly<Record<string, string | undefined>>,
  options: { readonly known: readonly string[] },
): Readonly<Static<T>> {
  const problems: string[] = [];
  const properties = schema.properties as Record<string, TSchema & SettingFacts>;
  const out: Record<string, unknown> = {};
  for (const [name, property] of Object.entries(properties)) {
    const raw = readRaw(name, property, env, problems);
    if (raw === undefined) {
      if (property.default !== undefined) out[name] = property.default;
      continue;
    }
    const value = Value.Convert(property, raw);
    if (Value.Check(property, value)) out[name] = value;
    else
      problems.push(
        `${name}: ${describe(property)}, got ${property.secret === true ? '[redacted]' : JSON.stringify(raw)}`,
      );
  }
  const known = new Set([...Object.keys(properties), ...options.known]);
  for (const name of Object.keys(env)) {
    if (!name.startsWith('LONGSHORE_') || known.has(name) || known.has(name.replace(/_FILE$/, ''))) continue;
    const near = nearSetting(name, known);
    problems.push(`${name}: no such setting${near === undefined ? '' : `; did you mean ${near}?`}`);
  }
  if (problems.length > 0) {
    throw new StartupError('bad_config', `settings are wrong:\n${problems.map((line) => `  ${line}`).join('\n')}`);
  }
  return Object.freeze(out) as Readonly<Static<T>>;
}

function readRaw(
  name: string,
  property: TSchema & SettingFacts,
  env: Readonly<Record<string, string | undefined>>,
  problems: string[],
): string | undefined {
  const direct = env[name];
  if (direct !== undefined && direct !== '') return direct;
  const file = property.secret === true ? env[`${name}_FILE`] : undefined;
  if (file === undefined || file === '') return undefined;
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (error) {
    problems.push(`${name}_FILE: cannot be read (${messageOf(error)})`);
    return undefined;
  }
}

function describe(
  property: TSchema &
    SettingFacts & { type?: string; minimum?: number; maximum?: number; anyOf?: readonly { const?: unknown }[] },
): string {
  const bounds = [
    property.minimum === undefined ? '' : ` from ${property.minimum}`,
    property.maximum === undefined ? '' : ` to ${property.maximum}`,
  ].join('');
  const kind =
    property.type === undefined
      ? `one of ${(property.anyOf ?? []).map((choice) => String(choice.const)).join(', ')}`
      : `${property.type === 'integer' ? 'an' : 'a'} ${property.type}${bounds}`;
  return `must be ${kind}${property.description === undefined ? '' : ` (${property.description})`}`;
}
