// Labels of machines, such as `zone=a`, and what a stub says of them. Pure.
import { isRecord } from '../json.ts';

export type Labels = Readonly<Record<string, string>>;
/** Values by the key of a label. */
export type LabelValues = Readonly<Record<string, readonly string[]>>;

/** Rules of a stub for the machines of its containers; keys and values are sorted. */
export interface LabelRules {
  /** Labels that a machine must have, each with one of these values. */
  readonly require: LabelValues;
  /** Labels that a machine must not have with one of these values. */
  readonly forbid: LabelValues;
  /** Labels of machines that come first; a machine with more of them comes before one with fewer. */
  readonly prefer: LabelValues;
  /** Label over whose values the containers of a deployment are spread, where there is room; empty: none. */
  readonly spread: string;
}

/** Labels of a machine. */
export const MOST_LABELS = 32;
const MOST_KEYS = { require: 8, forbid: 8, prefer: 4 } as const;
const MOST_VALUES = 16;

const KEY_WORDS = 'letters, digits, dot, dash, underscore or slash, at most 63, with a letter or digit at both ends';
const VALUE_WORDS = 'letters, digits, dot, dash or underscore, at most 63, with a letter or digit at both ends';

const KEY_FORM = '[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?';
const VALUE_FORM = '[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?';
/** Form of labels in one text, such as `zone=a,disk=nvme`; empty: none. */
export const LABELS_PATTERN = `^(?:${KEY_FORM}=${VALUE_FORM}(?:,${KEY_FORM}=${VALUE_FORM}){0,${MOST_LABELS - 1}})?$`;
export const LABELS_WORDS = 'labels with commas between them, such as zone=a,disk=nvme';

const KEY = new RegExp(`^${KEY_FORM}$`);
const VALUE = new RegExp(`^${VALUE_FORM}$`);

/** Why a label cannot have that key; undefined: it can. */
export const labelKeyProblem = (key: string): string | undefined =>
  KEY.test(key) ? undefined : `${JSON.stringify(key.slice(0, 80))} is no key of a label: ${KEY_WORDS}`;

/** Why a label cannot be; undefined: it can. */
export const labelProblem = (key: string, value: unknown): string | undefined =>
  labelKeyProblem(key) ??
  (typeof value === 'string' && VALUE.test(value)
    ? undefined
    : `${key}=${typeof value === 'string' ? value.slice(0, 80) : JSON.stringify(value)?.slice(0, 80)} is no label: its value must be ${VALUE_WORDS}`);

/** Labels of one text of that form; of a key that is there twice the last one counts. */
export const readLabels = (text: string): Labels =>
  Object.fromEntries(
    text
      .split(',')
      .map((part) => part.split('='))
      .flatMap(([key = '', value = '']) => (labelProblem(key, value) === undefined ? [[key, value] as const] : [])),
  );

/** Labels of several sources; the later ones win. What exceeds the bound is left out of the first ones. */
export function mergedLabels(...sources: readonly Labels[]): Labels {
  const merged = new Map<string, string>();
  for (const source of sources.toReversed())
    for (const [key, value] of Object.entries(source))
      if (!merged.has(key) && merged.size < MOST_LABELS) merged.set(key, value);
  return Object.fromEntries([...merged].toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

/** Labels as text: `disk=nvme,zone=a`. */
export const labelsText = (labels: Labels): string =>
  Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .toSorted()
    .join(',');

/** The value of a label; undefined: the machine does not have the label. */
export const labelOf = (labels: Labels, key: string): string | undefined =>
  Object.hasOwn(labels, key) ? labels[key] : undefined;

// ---- rules ----------------------------------------------------------------------------------------------------------

/**
 * Reads the rules of a stub.
 * @param field - as the request calls them
 * @returns undefined: there are none. A text: the sentence that refuses them
 */
export function readRules(value: unknown, field: string): LabelRules | string | undefined {
  if (value === undefined || value === null) return undefined;
  if (!isRecord(value)) return `${field} must be an object`;
  const { require, forbid, prefer, spread, ...others } = value;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined)
    return `${field}.${unknown.slice(0, 80)} is not known; there are require, forbid, prefer, spread`;
  const read = {
    require: valuesOf(require, `${field}.require`, MOST_KEYS.require),
    forbid: valuesOf(forbid, `${field}.forbid`, MOST_KEYS.forbid),
    prefer: valuesOf(prefer, `${field}.prefer`, MOST_KEYS.prefer),
  };
  for (const one of Object.values(read)) if (typeof one === 'string') return one;
  const key = spread ?? '';
  if (typeof key !== 'string') return `${field}.spread must be the key of a label`;
  const problem = key === '' ? undefined : labelKeyProblem(key);
  if (problem !== undefined) return `${field}.spread: ${problem}`;
  const rules = { ...(read as Pick<LabelRules, 'require' | 'forbid' | 'prefer'>), spread: key };
  return Object.values(rules).every((one) => Object.keys(one).length === 0) ? undefined : rules;
}

function valuesOf(value: unknown, field: string, most: number): LabelValues | string {
  if (value === undefined || value === null) return {};
  if (!isRecord(value)) return `${field} must be an object of values by the key of a label`;
  const keys = Object.keys(value).toSorted();
  if (keys.length > most) return `${field} may name ${most} labels, not ${keys.length}`;
  const read: Record<string, readonly string[]> = {};
  for (const key of keys) {
    const given = value[key];
    const list: readonly unknown[] = Array.isArray(given) ? given : [given];
    if (list.length === 0 || list.length > MOST_VALUES)
      return `${field}.${key.slice(0, 80)} must have 1 to ${MOST_VALUES} values`;
    for (const one of list) {
      const problem = labelProblem(key, one);
      if (problem !== undefined) return `${field}: ${problem}`;
    }
    read[key] = [...new Set(list as readonly string[])].toSorted();
  }
  return read;
}

const hasOne = (labels: Labels, key: string, values: readonly string[]): boolean => {
  const value = labelOf(labels, key);
  return value !== undefined && values.includes(value);
};

/** Whether a machine with these labels may take the containers. */
export const labelsFit = (labels: Labels, rules: Pick<LabelRules, 'require' | 'forbid'> | undefined): boolean =>
  rules === undefined ||
  (Object.entries(rules.require).every(([key, values]) => hasOne(labels, key, values)) &&
    !Object.entries(rules.forbid).some(([key, values]) => hasOne(labels, key, values)));

/** Number of the preferred labels that a machine has. */
export const labelsPreferred = (labels: Labels, rules: Pick<LabelRules, 'prefer'> | undefined): number =>
  rules === undefined ? 0 : Object.entries(rules.prefer).filter(([key, values]) => hasOne(labels, key, values)).length;

/**
 * Sentences on labels: one for each required label that no machine has, else one where no machine meets all rules.
 * @param machines - labels of each machine that the workspace may use
 */
export function labelTexts(rules: LabelRules | undefined, machines: readonly Labels[]): readonly string[] {
  if (rules === undefined || machines.some((labels) => labelsFit(labels, rules))) return [];
  const lacking = Object.entries(rules.require).filter(
    ([key, values]) => !machines.some((labels) => hasOne(labels, key, values)),
  );
  const texts = lacking.map(
    ([key, values]) =>
      `no machine has the label ${values.map((value) => `${key}=${value}`).join(' or ')}${hereText(key, machines)}`,
  );
  return texts.length > 0 ? texts : ['no machine has all labels that it requires and none that it forbids'];
}

const MOST_NAMED = 8;

function hereText(key: string, machines: readonly Labels[]): string {
  const here = [...new Set(machines.flatMap((labels) => labelOf(labels, key) ?? []))].toSorted();
  if (here.length === 0) return '';
  return `: there are ${here
    .slice(0, MOST_NAMED)
    .map((value) => `${key}=${value}`)
    .join(', ')}${here.length > MOST_NAMED ? ', …' : ''}`;
}
