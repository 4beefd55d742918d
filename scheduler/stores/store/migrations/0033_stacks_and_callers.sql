-- Stacks: groups of apps, for people. Deleting one keeps its apps.
create table stacks (
  id text primary key,
  workspace_id text not null references workspaces (id) on delete cascade,
  name text not null,
  app_ids text[] not null default '{}',  -- in the order given; deleted apps are passed over
  layout json not null default '{}',     -- of programs that draw it
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  unique (workspace_id, name)
);
create index stacks_by_change on stacks (workspace_id, updated_at desc, id desc);

-- The workspace whose token called a public deployment of another.
alter table tasks add column called_by text;
create index if not exists tasks_by_caller on tasks (called_by, created_at desc, id desc) where called_by is not null;
