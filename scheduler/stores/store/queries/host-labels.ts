import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { maybeOne } from '../rows.ts';

/** The holder of a host label: all versions of one name. */
export interface LabelHolder {
  readonly workspaceId: WorkspaceId;
  readonly name: string;
  readonly stubType: string;
}

export function labelOfName(db: Queryable, holder: LabelHolder): Promise<string | undefined> {
  return maybeOne(
    db,
    'select label from host_labels where workspace_id = $1 and name = $2 and stub_type = $3 order by label limit 1',
    [holder.workspaceId, holder.name, holder.stubType],
    (row: { label: string }) => row.label,
  );
}

/** Claims a label. False: another name holds it. A second claim by the same name succeeds. */
export async function claimLabel(db: Queryable, label: string, holder: LabelHolder): Promise<boolean> {
  const params = [label, holder.workspaceId, holder.name, holder.stubType];
  await db.query(
    'insert into host_labels (label, workspace_id, name, stub_type) values ($1, $2, $3, $4) on conflict (label) do nothing',
    params,
  );
  const held = await maybeOne(
    db,
    'select label from host_labels where label = $1 and workspace_id = $2 and name = $3 and stub_type = $4',
    params,
    (row: { label: string }) => row.label,
  );
  return held !== undefined;
}
