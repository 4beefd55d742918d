// Targets of `longshore deploy`: a handler, a file with all its handlers, or a folder with all its app files.
// A file that cannot be read hides no other.
import { readFile } from 'node:fs/promises';
import { statSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { CliError, usageError } from '../errors.ts';
import { describeFile, functionName, kindOf, splitTarget } from './describe.ts';
import type { HandlerDefinition } from './describe.ts';
import { collectFiles } from './files.ts';

/** A handler to deploy. */
export interface DeployItem {
  /** `file.py:handler`, as the person can type it. */
  readonly target: string;
  /** The directory to pack. */
  readonly root: string;
  readonly handler: HandlerDefinition;
}

/** A file or handler that cannot be deployed. */
export interface FailedItem {
  readonly target: string;
  readonly error: CliError;
}

export interface DeployTargets {
  readonly items: readonly DeployItem[];
  readonly failed: readonly FailedItem[];
  /** Names of handlers in the file beside the named one. */
  readonly others: readonly string[];
  readonly isFolder: boolean;
}

type Env = Readonly<Record<string, string | undefined>>;

/**
 * Reads a target.
 * @param rootFlag - the directory to pack; undefined: each file's own
 * @throws CliError when a file that was named cannot be read, or a folder has no app
 */
export async function readTargets(target: string, rootFlag: string | undefined, env: Env): Promise<DeployTargets> {
  if (statSync(target, { throwIfNoEntry: false })?.isDirectory() !== true) {
    const { root, handlers, others } = await describeFile(target, rootFlag, env);
    const { handlerName } = splitTarget(target);
    const file = handlerName === undefined ? target : target.slice(0, -handlerName.length - 1);
    const items = handlers.map((handler) => ({ target: `${file}:${functionName(handler)}`, root, handler }));
    return { ...withoutTwins(items), others, isFolder: false };
  }
  const items: DeployItem[] = [];
  const failed: FailedItem[] = [];
  for (const file of await appFiles(target)) {
    try {
      const { root, handlers } = await describeFile(file, rootFlag, env);
      items.push(...handlers.map((handler) => ({ target: `${file}:${functionName(handler)}`, root, handler })));
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      failed.push({ target: file, error });
    }
  }
  if (items.length === 0 && failed.length === 0)
    throw usageError(`no Python file in ${resolve(target)} defines a handler: name a file, or another folder`);
  const unlike = withoutTwins(items);
  return { items: unlike.items, failed: [...failed, ...unlike.failed], others: [], isFolder: true };
}

/** The second of two handlers with one name would replace the first as its next version. */
function withoutTwins(every: readonly DeployItem[]): Pick<DeployTargets, 'items' | 'failed'> {
  const first = new Map<string, string>();
  const items: DeployItem[] = [];
  const failed: FailedItem[] = [];
  for (const item of every) {
    const { handler, target } = item;
    const key = `${kindOf(handler)}/${handler.name}`;
    const twin = first.get(key);
    if (twin === undefined) {
      first.set(key, target);
      items.push(item);
    } else {
      const text = `its deployment would have the name of ${twin}, ${key}: give it another with name="…"`;
      failed.push({ target, error: new CliError(text) });
    }
  }
  return { items, failed };
}

/** The file of a target. */
const fileOf = (target: string): string => /^(.*\.py)(?::[^:]*)?$/.exec(target)?.[1] ?? target;

/** Targets of which nothing was deployed yet, with what is known to be wrong. */
export interface SoundTargets {
  readonly items: readonly DeployItem[];
  readonly failed: readonly FailedItem[];
  /** Handlers without a fault of their own, in a file that has a refused one. */
  readonly heldBack: readonly DeployItem[];
}

/**
 * Leaves out the files of refused handlers: half of an app that calls the other half is worse than the app of before.
 * @param refused - why handlers among the items are refused, by their targets
 */
export function soundTargets({ items, failed }: DeployTargets, refused: readonly FailedItem[]): SoundTargets {
  const every = [...failed, ...refused];
  const files = new Set(every.map(({ target }) => fileOf(target)));
  const wrong = new Set(refused.map(({ target }) => target));
  const isHeld = ({ target }: DeployItem): boolean => files.has(fileOf(target));
  return {
    items: items.filter((item) => !isHeld(item)),
    failed: every,
    heldBack: items.filter((item) => isHeld(item) && !wrong.has(item.target)),
  };
}

const MODULE = /^\s*(?:from|import)\s+(?:longshore|beam|beta9)\b/m;
const DEFINES =
  /^@(?:\w+\.)*(?:endpoint|task_queue|function|schedule|asgi|realtime)\b|^\w+(?::[^=\n]+)?\s*=\s*(?:\w+\.)*Pod\s*\(/m;

/** Python files of a folder that look like apps, in order of their paths. Files that are not packed do not count. */
async function appFiles(folder: string): Promise<readonly string[]> {
  const { files } = await collectFiles(folder);
  const found: string[] = [];
  for (const { path, fullPath } of files) {
    if (!path.endsWith('.py')) continue;
    const text = await readFile(fullPath, 'utf8');
    if (definesHandlers(text)) found.push(relative('', join(folder, path)));
  }
  return found;
}

/** Whether the text of a Python file looks as if it defined handlers. @internal exported for its test */
export const definesHandlers = (text: string): boolean => MODULE.test(text) && DEFINES.test(text);
