-- Values that containers get as variables and nobody reads back. Code
-- of the version before does not know of them and is not disturbed.

create table secrets (
  id text primary key,
  workspace_id text not null references workspaces (id) on delete cascade,
  name text not null,
  -- Sealed with the installation's key, for this workspace and this name.
  sealed bytea not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  unique (workspace_id, name)
);
