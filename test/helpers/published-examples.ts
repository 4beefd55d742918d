// App files of published repositories, in checkouts that LS_PUBLISHED_EXAMPLES names: which there are, the names that
// they import, and a row for each that says what becomes of it.
import { cpSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { basename, delimiter, join } from 'node:path';
import { definesHandlers } from '#cli/deploy/targets.ts';
import { textField, textsField } from '#cli/json.ts';
import { isRecord } from '#shared/json.ts';
import type { Ended } from './programs.ts';

/** Variable that names folders, as PATH does. Their files are copied, and stay as they are. */
export const CHECKOUTS = 'LS_PUBLISHED_EXAMPLES';
/** Variable that names a file to which the table is written, as a table of a document. */
export const TABLE = 'LS_PUBLISHED_TABLE';

const IMPORT = /^[ \t]*from[ \t]+(?:beam|beta9)(\.\w+)?[ \t]+import[ \t]+(\([^)]*\)|[^\n#]+)/gm;
const NEVER: ReadonlySet<string> = new Set(['.git', 'node_modules', '__pycache__', '.venv']);

export interface PublishedFile {
  /** Name of its checkout, and its path there. */
  readonly path: string;
  /** The copy. */
  readonly full: string;
  /** Names of the published packages that it imports. */
  readonly names: readonly string[];
  /** Whether something in it can be deployed, as its text looks. */
  readonly defines: boolean;
}

export interface Row {
  readonly path: string;
  readonly names: readonly string[];
  /** `runs`, `deploys` or `refused`. */
  readonly became: 'runs' | 'deploys' | 'refused' | 'no handler';
  readonly why: string;
}

export const checkouts = (): readonly string[] =>
  (process.env[CHECKOUTS] ?? '').split(delimiter).filter((folder) => folder !== '');

/** Copies checkouts into a folder, and lists their Python files that import a published package, by path. */
export function publishedFiles(folders: readonly string[], into: string): readonly PublishedFile[] {
  const found: PublishedFile[] = [];
  for (const folder of folders) {
    const name = basename(folder);
    if (!statSync(folder).isDirectory()) throw new Error(`${CHECKOUTS}: ${folder} is not a folder`);
    const copy = join(into, name);
    cpSync(folder, copy, { recursive: true, filter: (path) => !NEVER.has(basename(path)) });
    const paths = readdirSync(copy, { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.py'));
    for (const path of paths.toSorted()) {
      const text = readFileSync(join(copy, path), 'utf8');
      const names = namesIn(text);
      if (names.length > 0)
        found.push({ path: join(name, path), full: join(copy, path), names, defines: definesHandlers(text) });
    }
  }
  return found;
}

/** Names that a file imports of the published packages. */
export function namesIn(text: string): readonly string[] {
  const names = [...text.matchAll(IMPORT)].flatMap(([, module = '', list = '']) =>
    list
      .replace(/[()]/g, '')
      .split(',')
      .map(
        (one) =>
          one
            .replace(/#.*$/gm, '')
            .trim()
            .split(/\s+as\s+/)[0] ?? '',
      )
      .filter((one) => one !== '')
      .map((one) => `${module === '' ? '' : `${module.slice(1)}.`}${one}`),
  );
  return [...new Set(names)].toSorted();
}

/** Names of secrets that a dry run misses. */
export const missingSecrets = (ended: Ended): readonly string[] => [
  ...new Set([...ended.stdout.matchAll(/there is no secret (\w+) in this workspace/g)].map(([, name = '']) => name)),
];

/** Programs and packages whose downloads a test cannot wait for. */
const LARGE = /\b(torch|tensorflow|vllm|bpy|transformers)\b/;
/** Hosts that steps of a build fetch from, besides package indexes. */
const OUTSIDE = /(?:git\+|git clone |wget |curl )\S*?\s?(?:-\S+ )*https?:\/\/([^/\s'"]+)/g;

/**
 * The row of a file after its dry run.
 * @param secrets - names that the run before missed, and that are there now
 */
export function rowOf(file: PublishedFile, ended: Ended, secrets: readonly string[]): Row {
  const row = (became: Row['became'], why: string): Row => ({ path: file.path, names: file.names, became, why });
  const plan = planIn(ended.stdout);
  if (plan === undefined) {
    const why = errorIn(ended);
    return why.includes('defines no handler') ? row('no handler', 'a file beside an app') : row('refused', why);
  }
  if (plan.problems.length > 0) return row('refused', [...new Set(plan.problems)].join('; '));
  const notes = [
    ...(secrets.length === 0 ? [] : [`needs the secret ${secrets.join(', ')}`]),
    ...plan.warnings,
    ...(plan.large.length === 0 ? [] : [`large packages (${plan.large.join(', ')})`]),
    ...(plan.outside.length === 0 ? [] : [`its build fetches from ${plan.outside.join(', ')}`]),
  ];
  return row('deploys', notes.length === 0 ? 'a call was not tried' : notes.join('; '));
}

interface Plan {
  readonly problems: readonly string[];
  readonly warnings: readonly string[];
  readonly large: readonly string[];
  readonly outside: readonly string[];
}

function planIn(stdout: string): Plan | undefined {
  if (!stdout.includes('{\n')) return undefined;
  const told: unknown = JSON.parse(stdout.slice(stdout.indexOf('{\n')));
  if (!isRecord(told) || !Array.isArray(told['deployments'])) return undefined;
  const plans = told['deployments'].filter(isRecord);
  const failed = Array.isArray(told['failed']) ? told['failed'].filter(isRecord) : [];
  const steps = plans.flatMap((plan) => (isRecord(plan['image']) ? textsField(plan['image'], 'steps') : [])).join('\n');
  const unique = (list: readonly string[]): readonly string[] => [...new Set(list)].toSorted();
  return {
    // The place of a handler is no part of the reason.
    problems: [
      ...plans.flatMap((plan) => textsField(plan, 'problems').map((text) => text.replace(/^\S+\.py:\d+: /, ''))),
      ...failed.map((one) => textField(one, 'error')),
    ],
    // The cure behind a warning is the same in every row.
    warnings: unique(plans.flatMap((plan) => textsField(plan, 'warnings')).map((text) => text.split('; ')[0] ?? '')),
    large: unique([...steps.matchAll(new RegExp(LARGE, 'g'))].map(([name]) => name)),
    outside: unique([...steps.matchAll(OUTSIDE)].map(([, host = '']) => host)),
  };
}

/** The sentence with which the command ended. */
export function errorIn({ stderr }: Ended): string {
  const at = stderr.lastIndexOf('longshore: ');
  return at === -1 ? stderr.trim().slice(-500) : stderr.slice(at + 'longshore: '.length).trim();
}

const MOST_WHY = 130;

/** Text of a cell: its begin, on one line. */
function cell(text: string): string {
  const line = text.replaceAll('|', '\\|').replaceAll(/\s+/g, ' ');
  return line.length > MOST_WHY ? `${line.slice(0, MOST_WHY)}…` : line;
}

/** Title of the last column: what the published command line does with the same file. */
const PUBLISHED = 'By the published `beta9 deploy`';

/** The page whose table has these texts in its last column, by paths. @throws Error where a file has no row */
export function withPublished(page: string, texts: ReadonlyMap<string, string>): string {
  const left = new Map(texts);
  const lines = page.split('\n').map((line) => {
    const cells = line.split(/(?<!\\)\|/).slice(1, -1);
    const [first = '', names, became, why] = cells.map((one) => one.trim());
    if (first === 'File') return `| File | ${names} | ${became} | ${why} | ${PUBLISHED} |`;
    if (cells.length >= 4 && first === '---') return '|---|---|---|---|---|';
    const path = /^`(.+)`$/.exec(first)?.[1] ?? '';
    const text = left.get(path);
    if (text === undefined) return line;
    left.delete(path);
    return `| ${first} | ${names} | ${became} | ${why} | ${cell(text)} |`;
  });
  if (left.size > 0) throw new Error(`no row is of ${[...left.keys()].join(', ')}`);
  return lines.join('\n');
}

/** The rows as a table of a document, with the begin of each reason. */
export function tableOf(rows: readonly Row[]): string {
  const lines = rows.map(
    ({ path, names, became, why }) => `| \`${path}\` | ${names.join(', ')} | ${became} | ${cell(why)} |`,
  );
  return ['| File | Names | Became | Why |', '|---|---|---|---|', ...lines, ''].join('\n');
}
