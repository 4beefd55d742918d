-- Workspaces that are being deleted: nobody comes in from then on, and the leader removes what they own. A scheduler of
-- the version before does not look at the column, and lets callers in: upgrade every replica before one is deleted.
alter table workspaces
  add column deleting_at timestamptz,            -- null: it is not being deleted
  add column deletion_hold text not null default ''; -- what the deletion waits for, for people; empty: nothing

-- Workspaces that are gone. Their audit lines and their ledger are kept under their ids.
create table deleted_workspaces (
  id text primary key,
  number bigint not null,
  name text not null,
  created_at timestamptz not null,
  deleted_at timestamptz not null default now()
);

-- Rows of a workspace, where no other index finds them.
create index if not exists task_outputs_by_workspace on task_outputs (workspace_id);
create index if not exists deliveries_by_workspace on deliveries (workspace_id);
create index if not exists deferred_calls_by_workspace on deferred_calls (workspace_id);
