// Stacks: named groups of a workspace's apps, for people and for programs that draw them. A stack changes nothing about
// its apps. Called by the REST routes.
import {
  MAX_LAYOUT_BYTES,
  MAX_STACK_NAME,
  MOST_STACK_APPS,
  type ChangeStack,
  type CreateStack,
} from '#shared/api/rest/stacks.ts';
import { AppError } from '#shared/errors.ts';
import { JsonText } from '#shared/json-text.ts';
import { isUuid, newId } from '#shared/domain/ids.ts';
import type { AppId, StackId, WorkspaceId } from '#shared/domain/ids.ts';
import { isUniqueViolation } from '../../stores/store/db.ts';
import type { Db, Queryable } from '../../stores/store/db.ts';
import { appsNamed, liveAppsByIds } from '../../stores/store/queries/apps.ts';
import { lockCounts } from '../../stores/store/queries/workspaces.ts';
import type { AppRow } from '../../stores/store/queries/apps.ts';
import {
  countStacks,
  deleteStack,
  insertStack,
  lockStack,
  pageOfStacks,
  updateStack,
} from '../../stores/store/queries/stacks.ts';
import type { StackContent, StackRow } from '../../stores/store/queries/stacks.ts';

// Control characters would reach a terminal.
// oxlint-disable-next-line no-control-regex
const NAME = new RegExp(`^[^\\x00-\\x1f\\x7f]{1,${MAX_STACK_NAME}}$`);

export class Stacks {
  readonly #db: Pick<Db, 'query' | 'reads' | 'transaction'>;
  readonly #mostOf: (workspaceId: WorkspaceId) => number | Promise<number>;

  /** @param mostOf - number of stacks that a workspace may have */
  constructor(
    db: Pick<Db, 'query' | 'reads' | 'transaction'>,
    mostOf: (workspaceId: WorkspaceId) => number | Promise<number>,
  ) {
    this.#db = db;
    this.#mostOf = mostOf;
  }

  /** A page of stacks, the last changed first. */
  list(filter: Parameters<typeof pageOfStacks>[1]): Promise<readonly StackRow[]> {
    return pageOfStacks(this.#db.reads.of(filter.workspaceId), filter);
  }

  /** The apps of stacks that are there, by id. */
  async appsOf(workspaceId: WorkspaceId, stacks: readonly StackRow[]): Promise<ReadonlyMap<AppId, AppRow>> {
    const ids = [...new Set(stacks.flatMap((stack) => stack.appIds))];
    if (ids.length === 0) return new Map();
    const rows = await liveAppsByIds(this.#db.reads.of(workspaceId), workspaceId, ids);
    return new Map(rows.map((row) => [row.id, row]));
  }

  /** @throws AppError `invalid_body`, `stack_exists`, `too_many_stacks` */
  async create(workspaceId: WorkspaceId, sent: CreateStack): Promise<StackRow> {
    const name = checkedName(sent.name);
    const layout = checkedLayout(sent.layout ?? NO_LAYOUT);
    const most = await this.#mostOf(workspaceId);
    return this.#db.transaction(async (tx) => {
      await lockCounts(tx, workspaceId);
      const appIds = await idsOf(tx, workspaceId, 'apps', sent.apps ?? []);
      if ((await countStacks(tx, workspaceId)) >= most) {
        throw new AppError('too_many_stacks', `this workspace may have ${most} stacks`);
      }
      const row = await insertStack(tx, { id: newId<StackId>(), workspaceId, name, appIds: bounded(appIds), layout });
      if (row === undefined) throw taken(name);
      return row;
    });
  }

  /**
   * Replaces what `name` and `apps` say, or adds and removes apps.
   * @throws AppError `bad_request` (both at once), `stack_not_found`, `stack_exists`, `invalid_body`
   */
  async change(workspaceId: WorkspaceId, id: string, sent: ChangeStack): Promise<StackRow> {
    const isDelta = sent.add !== undefined || sent.remove !== undefined;
    if (isDelta && (sent.name !== undefined || sent.apps !== undefined)) {
      throw new AppError('bad_request', 'send name and apps, or add and remove: not both');
    }
    const both = sent.add?.find((name) => sent.remove?.includes(name) === true);
    if (both !== undefined) throw invalid(`add and remove both name ${both}`);
    if (sent.name !== undefined) checkedName(sent.name);
    if (sent.layout !== undefined) checkedLayout(sent.layout);
    try {
      return await this.#db.transaction(async (tx) => {
        const found = isUuid(id) ? await lockStack(tx, workspaceId, id.toLowerCase()) : undefined;
        if (found === undefined) throw notFound();
        const content: StackContent = {
          name: sent.name ?? found.name,
          appIds: bounded(await appsAfter(tx, workspaceId, found, sent)),
          layout: sent.layout ?? found.layout,
        };
        const row = await updateStack(tx, found.id, content);
        if (row === undefined) throw notFound();
        return row;
      });
    } catch (error) {
      if (!isUniqueViolation(error)) throw error;
      throw taken(sent.name ?? '', error);
    }
  }

  /** Deletes the stack; its apps stay. @throws AppError `stack_not_found` */
  async delete(workspaceId: WorkspaceId, id: string): Promise<void> {
    if (!isUuid(id) || !(await deleteStack(this.#db, workspaceId, id.toLowerCase()))) throw notFound();
  }
}

async function appsAfter(
  tx: Queryable,
  workspaceId: WorkspaceId,
  { appIds }: StackRow,
  { apps, add, remove }: ChangeStack,
): Promise<readonly AppId[]> {
  if (apps !== undefined) return idsOf(tx, workspaceId, 'apps', apps);
  const added = await idsOf(tx, workspaceId, 'add', add ?? []);
  // Names that nothing has are passed over: the stack is without them already.
  const removed = new Set((await appsNamed(tx, workspaceId, remove ?? [])).map((app) => app.id));
  return [...new Set([...appIds, ...added])].filter((id) => !removed.has(id));
}

/** Ids of apps by name, in the order of the names. @throws AppError `invalid_body`, naming the first unknown one */
async function idsOf(
  tx: Queryable,
  workspaceId: WorkspaceId,
  field: string,
  names: readonly string[],
): Promise<readonly AppId[]> {
  if (names.length === 0) return [];
  const distinct = [...new Set(names)];
  if (distinct.length > MOST_STACK_APPS) throw invalid(`${field} may name ${MOST_STACK_APPS} apps`);
  const found = new Map((await appsNamed(tx, workspaceId, distinct)).map((app) => [app.name, app.id]));
  return distinct.map((name) => {
    const id = found.get(name);
    if (id === undefined) throw invalid(`${field} names ${name}: there is no such app`);
    return id;
  });
}

function bounded(appIds: readonly AppId[]): readonly AppId[] {
  if (appIds.length > MOST_STACK_APPS) throw invalid(`a stack may have ${MOST_STACK_APPS} apps`);
  return appIds;
}

function checkedName(name: string): string {
  if (!NAME.test(name)) throw invalid(`name must have 1 to ${MAX_STACK_NAME} characters, none of them a control`);
  return name;
}

const NO_LAYOUT = new JsonText('{}');

function checkedLayout(layout: JsonText): JsonText {
  if (Buffer.byteLength(layout.text) <= MAX_LAYOUT_BYTES) return layout;
  throw invalid(`layout must have at most ${MAX_LAYOUT_BYTES} bytes as JSON`);
}

const invalid = (text: string): AppError => new AppError('invalid_body', text);
const notFound = (): AppError => new AppError('stack_not_found', 'stack not found');
const taken = (name: string, cause?: unknown): AppError =>
  new AppError('stack_exists', `there is a stack ${name} already`, cause === undefined ? {} : { cause });
