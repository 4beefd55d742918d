// Choice among the versions of a name: which one serves, which one served before. Pure, but for the reading.
import { shellWord } from '#shared/shell-word.ts';
import type { Client } from '../client.ts';
import { CliError, notFound, usageError } from '../errors.ts';
import { allVersions, shown } from './deployment-reference.ts';
import type { DeploymentFacts } from './deployment-reference.ts';

/** Versions of a name, the highest first, and the one that its calls reach. */
export interface Versions {
  readonly all: readonly DeploymentFacts[];
  readonly serving: DeploymentFacts;
}

/** @throws CliError when nothing has the name, or several kinds have it */
export async function readVersions(client: Client, name: string): Promise<Versions> {
  const all = await allVersions(client, name);
  const serving = all.find((one) => one.serving) ?? all[0];
  if (serving === undefined) throw notFound(`no deployment is named ${name}: \`longshore deployment list\` shows them`);
  return { all, serving };
}

/** The version that a person names, as `v3` or `3`. */
export function versionNamed({ all, serving }: Versions, text: string): DeploymentFacts {
  const digits = /^v?([1-9]\d{0,8})$/.exec(text)?.[1];
  if (digits === undefined) throw usageError(`${JSON.stringify(text)} is not a version: say v3`);
  const found = all.find((one) => one.version === Number(digits));
  if (found !== undefined) return found;
  const there = all.slice(0, 5).map((one) => `v${one.version}`);
  throw notFound(
    `there is no ${serving.name} v${digits}: there is ${there.join(', ')}${all.length > there.length ? ', …' : ''}`,
  );
}

/** The version that calls of the name reached before the one that they reach now; undefined: there is none. */
export function servedBefore({ all, serving }: Versions): DeploymentFacts | undefined {
  return all.find((one) => one.version < serving.version && (one.rollout === '' || one.rollout === 'done'));
}

/** Where a roll back without a version leads: it ends a rollout that waits, else the version before serves again. */
export function rollbackTarget(versions: Versions): DeploymentFacts {
  const { all, serving } = versions;
  if (all.some((one) => one.rollout === 'waiting' && one.version > serving.version)) return serving;
  const active = all.filter((one) => one.active);
  const before = servedBefore({ all: active, serving });
  if (before !== undefined) return before;
  const newer = active.findLast((one) => one.version > serving.version);
  const forward =
    newer === undefined
      ? ''
      : `; \`longshore deployment rollback ${shellWord(newer.name)} v${newer.version}\` goes forward`;
  throw new CliError(
    `${shown(serving)} has no active version before it: \`longshore deployment list\` shows all${forward}`,
  );
}

/** The two versions that a comparison is about. */
export function comparedVersions(
  versions: Versions,
  { from, to }: { readonly from: string | undefined; readonly to: string | undefined },
): readonly [DeploymentFacts, DeploymentFacts] {
  const { all, serving } = versions;
  const [highest = serving] = all;
  if (from !== undefined)
    return [versionNamed(versions, from), to === undefined ? serving : versionNamed(versions, to)];
  if (highest.version > serving.version) return [serving, highest];
  const before = servedBefore(versions) ?? all.find((one) => one.version < serving.version);
  if (before === undefined)
    throw new CliError(`${shown(serving)} is the only version of its name: deploy another to compare it`);
  return [before, serving];
}
