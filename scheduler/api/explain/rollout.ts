// Sentences about the rollout of a version, and about newer versions that calls of its name do not reach. Pure.
import { shellWord } from '#shared/shell-word.ts';
import { timestampOf } from '#shared/api/fields.ts';
import { isServing } from '../../domain/rollouts.ts';
import type { DeploymentRow } from '../../stores/store/queries/deployments.ts';
import type { WaitTexts } from './deployment.ts';

export interface RolloutTexts {
  readonly details: readonly string[];
  readonly steps: readonly string[];
  /** The rollout's next change; absent: there is none. */
  readonly wait?: WaitTexts;
  /** Calls of the name reach another version, so commands need the number of this one. */
  readonly isOther: boolean;
  /** This version did not start in its rollout: why, and since when. */
  readonly failed?: { readonly why: string; readonly since: string | null };
}

type Version = Pick<DeploymentRow, 'id' | 'name' | 'version' | 'rollout' | 'rolloutSinceMs' | 'rolloutWhy'>;

export interface RolloutView {
  readonly row: Version;
  /** The version that calls of the name reach. */
  readonly serving: Version | undefined;
  /** The highest version of the name. */
  readonly highest: Version | undefined;
  /** Time that a start may take. */
  readonly limitMs: number;
}

const NONE: RolloutTexts = { details: [], steps: [], isOther: false };

export function rolloutTexts({ row, serving, highest, limitMs }: RolloutView): RolloutTexts {
  if (serving === undefined) return NONE;
  if (serving.id === row.id) return highest === undefined ? NONE : aboutNewer(row, highest);
  const { name, version, rollout, rolloutWhy } = row;
  if (rollout === 'waiting') {
    const until = row.rolloutSinceMs === null ? null : timestampOf(row.rolloutSinceMs + limitMs);
    return {
      details: [`calls of ${name} go on to v${serving.version} until a container of this version is ready`],
      isOther: true,
      steps: [`\`longshore deployment rollback ${shellWord(name)} v${version}\` moves calls of ${name} here at once`],
      wait: { waits_for: `a ready container; then calls of ${name} move here`, until },
    };
  }
  const where = `calls of ${name} reach v${serving.version}, not this version`;
  if (isServing(rollout)) return { details: [where], steps: [], isOther: true };
  return {
    details: [`${where}: ${rolloutWhy}`],
    isOther: true,
    ...(rollout === 'failed' ? { failed: { why: rolloutWhy, since: timestampOf(row.rolloutSinceMs) } } : {}),
    steps:
      rollout === 'failed'
        ? [
            `\`longshore logs ${shellWord(`${name}/v${version}`)}\` shows what its containers wrote`,
            `correct it and deploy again, or \`longshore deployment start ${shellWord(`${name}/v${version}`)}\` tries at once`,
          ]
        : [],
  };
}

/** The newer version that waits, or that does not start. */
function aboutNewer({ name, version }: Version, newer: Version): RolloutTexts {
  if (newer.version <= version) return NONE;
  const reference = `${name}/v${newer.version}`;
  const steps = [`\`longshore explain ${shellWord(reference)}\` says more about the newer version`];
  if (newer.rollout === 'waiting')
    return {
      details: [`v${newer.version} takes the calls of ${name} when a container of it is ready`],
      steps,
      isOther: false,
    };
  if (newer.rollout === 'failed')
    return {
      details: [`v${newer.version} did not start, so this version serves on: ${newer.rolloutWhy}`],
      steps,
      isOther: false,
    };
  return NONE;
}
