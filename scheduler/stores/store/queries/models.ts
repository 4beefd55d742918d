// Models of hosted inference: one row each, with the list of its backends.
import type { ModelBackend, ModelCapabilities, ModelRecord } from '#shared/api/rest/models.ts';
import { JsonText, memberText, stringifyExactly } from '#shared/json-text.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { ModelType, Prices } from '../../../domain/inference.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne, msOf } from '../rows.ts';

/** Fields that the catalog shows and that no statement asks for. */
export interface ModelDetails {
  readonly displayName: string;
  readonly description: string;
  /** Empty: the name of the workspace. */
  readonly ownedBy: string;
  readonly contextLength: number | null;
  readonly maxOutputTokens: number | null;
  readonly embedding: ModelRecord['embedding'];
  readonly capabilities: ModelCapabilities;
  readonly supportedParameters: readonly string[];
  readonly inputSchema: JsonText | null;
  readonly outputSchema: JsonText | null;
  readonly defaultParameters: JsonText;
  readonly shutdownDate: string | null;
}

export interface ModelRow {
  readonly id: string;
  readonly workspaceId: WorkspaceId;
  readonly workspaceName: string;
  /** Id of the catalog, as callers send it. */
  readonly name: string;
  readonly isPublic: boolean;
  readonly active: boolean;
  readonly type: ModelType;
  readonly prices: Prices;
  readonly details: ModelDetails;
  readonly backends: readonly ModelBackend[];
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

interface Raw {
  id: string;
  workspace_id: string;
  workspace_name: string;
  name: string;
  is_public: boolean;
  active: boolean;
  type: string;
  prompt_micros: number | bigint;
  completion_micros: number | bigint;
  request_micros: number | bigint;
  details: string;
  backends: readonly ModelBackend[];
  created_at: Date;
  updated_at: Date;
}

const COLUMNS = `m.id, m.workspace_id, w.name as workspace_name, m.name, m.is_public, m.active, m.type, m.prompt_micros,
  m.completion_micros, m.request_micros, m.details::text as details, m.backends, m.created_at, m.updated_at`;
/** Models of a workspace that is being deleted are none. */
const FROM = 'models m join workspaces w on w.id = m.workspace_id and w.deleting_at is null';
const map = (row: Raw): ModelRow => ({
  id: row.id,
  workspaceId: row.workspace_id as WorkspaceId,
  workspaceName: row.workspace_name,
  name: row.name,
  isPublic: row.is_public,
  active: row.active,
  type: row.type as ModelType,
  prices: {
    promptMicrosPerMillion: Number(row.prompt_micros),
    completionMicrosPerMillion: Number(row.completion_micros),
    requestMicros: Number(row.request_micros),
  },
  details: detailsOf(row.details),
  backends: row.backends,
  createdAtMs: msOf(row.created_at),
  updatedAtMs: msOf(row.updated_at),
});

/** Details as they were written, with the JSON of their owner as text. */
function detailsOf(text: string): ModelDetails {
  const { inputSchema, outputSchema, ...details } = JSON.parse(text) as ModelDetails;
  const textOf = (name: keyof ModelDetails): JsonText => new JsonText(memberText(text, name) ?? '{}');
  return {
    ...details,
    inputSchema: inputSchema === null ? null : textOf('inputSchema'),
    outputSchema: outputSchema === null ? null : textOf('outputSchema'),
    defaultParameters: textOf('defaultParameters'),
  };
}

export type NewModel = Omit<ModelRow, 'workspaceName' | 'createdAtMs' | 'updatedAtMs'>;

const valuesOf = (model: NewModel): unknown[] => [
  model.id,
  model.workspaceId,
  model.name,
  model.isPublic,
  model.active,
  model.type,
  model.prices.promptMicrosPerMillion,
  model.prices.completionMicrosPerMillion,
  model.prices.requestMicros,
  stringifyExactly(model.details),
  JSON.stringify(model.backends),
];

/**
 * Inserts a model.
 * @param most - models of the workspace
 * @returns whether there was room
 * @throws a unique violation when the name is taken
 */
export async function insertModel(tx: Queryable, model: NewModel, most: number): Promise<boolean> {
  const { rowCount } = await tx.query(
    `insert into models (id, workspace_id, name, is_public, active, type, prompt_micros, completion_micros,
       request_micros, details, backends)
     select $1::text, $2::text, $3::text, $4::boolean, $5::boolean, $6::text, $7::bigint, $8::bigint, $9::bigint,
       $10::json, $11::json
     where (select count(*) from models where workspace_id = $2) < $12`,
    [...valuesOf(model), most],
  );
  return rowCount === 1;
}

/** Writes all fields of a model anew. @throws a unique violation when the public name is taken */
export async function updateModel(tx: Queryable, model: NewModel): Promise<void> {
  await tx.query(
    `update models set name = $3, is_public = $4, active = $5, type = $6, prompt_micros = $7, completion_micros = $8,
       request_micros = $9, details = $10::json, backends = $11::json, updated_at = date_trunc('milliseconds', now())
     where id = $1 and workspace_id = $2`,
    valuesOf(model),
  );
}

export async function deleteModel(tx: Queryable, workspaceId: WorkspaceId, name: string): Promise<boolean> {
  return (
    (await tx.query('delete from models where workspace_id = $1 and name = $2', [workspaceId, name])).rowCount === 1
  );
}

export function modelNamed(db: Queryable, workspaceId: WorkspaceId, name: string): Promise<ModelRow | undefined> {
  return maybeOne(
    db,
    `select ${COLUMNS} from ${FROM} where m.workspace_id = $1 and m.name = $2`,
    [workspaceId, name],
    map,
  );
}

/** Models of a workspace by name. @param after - name of the last one of the page before; empty: from the begin */
export function modelsOf(db: Queryable, workspaceId: WorkspaceId, after: string, limit: number): Promise<ModelRow[]> {
  return many(
    db,
    `select ${COLUMNS} from ${FROM} where m.workspace_id = $1 and m.name collate "C" > $2::text collate "C"
     order by m.name collate "C" limit $3`,
    [workspaceId, after, limit],
    map,
  );
}

/** Public models of all workspaces by name. */
export function publicModels(db: Queryable, limit: number): Promise<ModelRow[]> {
  return many(
    db,
    `select ${COLUMNS} from ${FROM} where m.is_public order by m.name collate "C" limit $1`,
    [limit],
    map,
  );
}
