// The file that declares shared pools, and how workspaces share machines. The file is read at the start, and again when
// an operator asks for it. All mistakes in it are reported together.
import { readFile, stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { PoolSettingsChange } from '#shared/api/pools.ts';
import { StartupError, messageOf } from '#shared/errors.ts';
import { isRecord } from '#shared/json.ts';
import { changedShare, readShareChange } from '../domain/workspace-share.ts';
import type { Sharing } from '../domain/shares.ts';
import { SHARING_ORDERS, SHARING_SECONDS } from '../workspaces/identity/sharing.ts';
import type { SharingSeconds } from '../workspaces/identity/sharing.ts';
import type { DeclaredShare } from '../workspaces/identity/shares.ts';
import { providerProblem, readPoolSettings, settled } from './pool-settings.ts';
import { poolNameProblem } from '../domain/pools.ts';

export interface DeclaredPool {
  readonly name: string;
  readonly settings: PoolSettingsChange;
}

/** The part of a file about sharing. Absent: it says nothing of it. */
export type SaidOfSharing = Partial<Sharing>;

export interface Declared {
  /** Declared pools, in the order of their names. */
  readonly pools: readonly DeclaredPool[];
  /** Shares of workspaces; absent: none is declared. */
  readonly shares?: readonly DeclaredShare[];
  /** Absent: nothing is said of it. */
  readonly sharing?: SaidOfSharing;
}

export interface PoolsFile extends Declared {
  /** Absolute path of the file. */
  readonly path: string;
}

const MAX_BYTES = 1024 * 1024;
/** Pools of one owner. */
export const MAX_POOLS = 1000;
const MAX_SHARES = 1000;
const PARTS = ['pools', 'workspaces', 'sharing'];

/**
 * @throws StartupError `bad_config`, naming the file and each wrong
 * pool and field; exit code 78: another start would not cure it
 */
export async function readPoolsFile(named: string): Promise<PoolsFile> {
  const path = resolve(named);
  return { path, ...declaredIn(path, await textOf(path)) };
}

async function textOf(path: string): Promise<string> {
  try {
    const { size } = await stat(path);
    if (size <= MAX_BYTES) return await readFile(path, 'utf8');
  } catch (error) {
    throw bad(path, [`cannot be read: ${whyUnread(error)}`], error);
  }
  throw bad(path, [`is larger than ${MAX_BYTES} bytes`]);
}

const UNREAD: Readonly<Record<string, string>> = {
  ENOENT: 'it is not there',
  ENOTDIR: 'it is not there',
  EACCES: 'this user may not',
  EISDIR: 'it is a directory',
};

const whyUnread = (error: unknown): string => {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return UNREAD[code] ?? (code || messageOf(error));
};

/** Place of the mistake, as far as the parser reports it. */
function whereBroken(message: string): string {
  const [, line, column] = /line (\d+) column (\d+)/.exec(message) ?? [];
  if (line !== undefined) return `: look at line ${line}, column ${column}`;
  const [token] = /(?<=^Unexpected token )'.+?'(?=,)/s.exec(message) ?? [];
  if (token !== undefined) return `: ${token} is not expected where it stands`;
  return message.startsWith('Unexpected end') ? ': it ends too early' : '';
}

/** Everything that a file's text declares. Pure. @throws StartupError as above */
export function declaredIn(path: string, text: string): Declared {
  let said: unknown;
  try {
    said = JSON.parse(text);
  } catch (error) {
    throw bad(path, [`is no JSON${whereBroken(messageOf(error))}`], error);
  }
  const pools = isRecord(said) ? said['pools'] : undefined;
  if (!isRecord(said) || !isRecord(pools)) throw bad(path, ['must be {"pools": {"<name>": {…settings}}}']);
  const problems = Object.keys(said)
    .filter((name) => !PARTS.includes(name))
    .map((name) => `${name.slice(0, 80)} is nothing that it may hold; there are ${PARTS.join(', ')}`);
  const declared = {
    pools: poolsIn(pools, problems),
    shares: sharesIn(said['workspaces'], problems),
    sharing: sharingIn(said['sharing'], problems),
  };
  if (problems.length > 0) throw bad(path, problems);
  return declared;
}

function poolsIn(pools: Readonly<Record<string, unknown>>, problems: string[]): readonly DeclaredPool[] {
  const entries = Object.entries(pools);
  if (entries.length > MAX_POOLS) problems.push(`pools: more than ${MAX_POOLS}`);
  const declared: DeclaredPool[] = [];
  for (const [name, settings] of entries) {
    const where = `pool ${name.slice(0, 80)}`;
    const nameProblem = poolNameProblem('the name', name);
    if (nameProblem !== undefined) problems.push(`${where}: ${nameProblem}`);
    const read = isRecord(settings) ? readPoolSettings(settings, '') : NO_OBJECT;
    if (read.kind === 'wrong') {
      problems.push(...read.problems.map((problem) => `${where}: ${problem}`));
      continue;
    }
    const unfit = providerProblem(settled(read.change));
    if (unfit !== undefined) problems.push(`${where}: ${unfit}`);
    declared.push({ name, settings: read.change });
  }
  return declared.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

function sharesIn(workspaces: unknown, problems: string[]): readonly DeclaredShare[] {
  if (workspaces === undefined) return [];
  if (!isRecord(workspaces)) {
    problems.push('workspaces must be an object such as {"research": {"weight": 2}}');
    return [];
  }
  const entries = Object.entries(workspaces);
  if (entries.length > MAX_SHARES) problems.push(`workspaces: more than ${MAX_SHARES}`);
  return entries.flatMap(([workspace, said]) => {
    const read = readShareChange(said);
    const next = read.kind === 'read' ? changedShare(null, read.change) : read;
    if (next.kind === 'changed') return [{ workspace, share: next.share }];
    problems.push(...next.problems.map((problem) => `workspace ${workspace.slice(0, 80)}: ${problem}`));
    return [];
  });
}

function sharingIn(sharing: unknown, problems: string[]): SaidOfSharing {
  if (sharing === undefined) return {};
  if (!isRecord(sharing)) {
    problems.push('sharing must be an object such as {"order": "share", "reserveAfterSeconds": 60}');
    return {};
  }
  for (const name of Object.keys(sharing))
    if (!SHARING_PARTS.includes(name))
      problems.push(`sharing.${name.slice(0, 80)} is no setting of sharing; there are ${SHARING_PARTS.join(', ')}`);
  const found: Partial<Record<keyof Sharing, unknown>> = {};
  const order = SHARING_ORDERS.find((one) => one === sharing['order']);
  if (order !== undefined) found.order = order;
  else if (sharing['order'] !== undefined) problems.push(`sharing.order must be ${SHARING_ORDERS.join(' or ')}`);
  for (const { part, most, mayBeOff } of SECONDS) {
    const said = sharing[part];
    if (said === undefined) continue;
    if ((mayBeOff && said === null) || isSeconds(said, most)) found[part] = said;
    else
      problems.push(
        `sharing.${part} must be a whole number from 0 to ${most}${mayBeOff ? ', or null, with which it never happens' : ''}`,
      );
  }
  return found as SaidOfSharing;
}

const SECONDS: readonly SharingSeconds[] = Object.values(SHARING_SECONDS);
const SHARING_PARTS: readonly string[] = ['order', ...SECONDS.map(({ part }) => part)];

const isSeconds = (said: unknown, most: number): boolean =>
  typeof said === 'number' && Number.isInteger(said) && said >= 0 && said <= most;

const NO_OBJECT = { kind: 'wrong', problems: ['must be an object of settings'] } as const;

const bad = (path: string, problems: readonly string[], cause?: unknown): StartupError =>
  new StartupError(
    'bad_config',
    problems.length === 1
      ? `LONGSHORE_POOLS_FILE ${path}: ${problems[0]}`
      : `LONGSHORE_POOLS_FILE ${path}:\n${problems.map((line) => `  ${line}`).join('\n')}`,
    { cause, exitCode: 78 },
  );
