-- Directories that outlive containers; code of the version before does not know of them and is not disturbed.

create table volumes (
  id text primary key,
  workspace_id text not null references workspaces (id) on delete cascade,
  name text not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  unique (workspace_id, name)
);
