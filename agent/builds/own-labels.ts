// Labels of Longshore's own on images: what a base may bring, and whether an image has what its build meant. Pure.
import { BUILD_STEP_LABEL, OWN_LABELS, SET_UP_LABELS } from '#shared/domain/built-images.ts';

type Labels = Readonly<Record<string, string>>;

/** Labels whose names are ours, in capitals as well; without those of set-up, which say nothing to an agent. */
const ownOf = (labels: Labels): readonly (readonly [string, string])[] =>
  Object.entries(labels).filter(([name]) => name.toLowerCase().startsWith(OWN_LABELS) && !SET_UP_LABELS.includes(name));

/** A label that no base of a build may bring; undefined: it brings none. */
export const takenLabel = (labels: Labels): string | undefined => ownOf(labels)[0]?.[0];

/**
 * A label of a built image that its build did not mean, or that is missing; undefined: all are as they should be.
 * @param endsInStep - the last layer is that of a RUN, which has a key
 */
export function wrongLabel(labels: Labels, meant: Labels, endsInStep: boolean): string | undefined {
  const isMeant = (name: string, value: string | undefined): boolean =>
    name === BUILD_STEP_LABEL && endsInStep ? /^[0-9a-f]{64}$/.test(value ?? '') : value === meant[name];
  const has = new Map(ownOf(labels));
  return [...new Set([...has.keys(), ...Object.keys(meant)])].find((name) => !isMeant(name, has.get(name)));
}
