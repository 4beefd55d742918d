// The difference between the configurations of two versions, value by value. Values of environment variables may be
// secret, so that only their names are shown. Pure.

export interface ConfigChange {
  /** Place of the value, such as `autoscaler.max_containers`. */
  readonly field: string;
  /** undefined: it is not there. */
  readonly from: string | undefined;
  readonly to: string | undefined;
}

const ENV = 'env ';
/** A digest of all parameters, which are compared one by one. */
const RECIPE = 'extra.recipe';

/** @param before - configuration as JSON, as a stub has it */
export function configChanges(before: string, after: string): readonly ConfigChange[] {
  const [from, to] = [flat(before), flat(after)];
  return [...new Set([...from.keys(), ...to.keys()])]
    .toSorted()
    .filter((field) => from.get(field) !== to.get(field))
    .map((field) => ({ field, from: told(field, from.get(field)), to: told(field, to.get(field)) }));
}

/** A change with the names and units that a person wrote, where they differ from those of the record. */
export function inWords({ field, from, to }: ConfigChange): ConfigChange {
  if (field === 'runtime.cpu') return { field: 'cpu', from: cores(from), to: cores(to) };
  if (field === 'runtime.memory') return { field: 'memory', from: mebibytes(from), to: mebibytes(to) };
  return { field, from, to };
}

const cores = (millicores: string | undefined): string | undefined =>
  millicores === undefined || !/^\d+$/.test(millicores) ? millicores : String(Number(millicores) / 1000);
const mebibytes = (count: string | undefined): string | undefined =>
  count === undefined || !/^\d+$/.test(count) ? count : `${count} MiB`;

const told = (field: string, value: string | undefined): string | undefined =>
  value === undefined || !field.startsWith(ENV) ? value : '(set)';

function flat(config: string): ReadonlyMap<string, string> {
  const values = new Map<string, string>();
  const add = (value: unknown, place: string): void => {
    if (place === RECIPE) return;
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      values.set(place, JSON.stringify(value));
      return;
    }
    for (const [name, inner] of Object.entries(value)) add(inner, place === '' ? name : `${place}.${name}`);
  };
  const { env, ...rest } = JSON.parse(config === '' ? '{}' : config) as { readonly env?: unknown };
  add(rest, '');
  for (const entry of Array.isArray(env) ? env.map(String) : []) values.set(`${ENV}${entry.split('=', 1)[0]}`, entry);
  return values;
}
