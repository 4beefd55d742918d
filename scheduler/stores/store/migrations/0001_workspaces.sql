-- The installation, its workspaces and their callers. In all files of the schema public ids are text, times are
-- timestamptz, and a fence is the number of the leader that wrote: a write with a lower one changes nothing.
create table installation (
  id integer primary key check (id = 1),
  signing_key bytea not null,            -- sealed
  ca_cert text not null,                 -- PEM
  ca_key bytea not null,                 -- sealed PKCS #8
  created_at timestamptz not null default now(),
  signing_key_retired_at timestamptz,
  tag uuid not null default gen_random_uuid() -- tag of the installation's instances
);

-- Keys that tokens are signed with, after the installation's first one. A token
-- names its key (`kid`). A token without that name was signed with the first key.
create table signing_keys (
  id text primary key,                   -- the `kid` of tokens
  number bigint generated always as identity unique,
  private_key bytea not null,            -- sealed PKCS #8
  created_at timestamptz not null default now(),
  retired_at timestamptz
);

-- Settings that the administrator changes while schedulers run. A row wins over the environment.
create table settings (
  name text primary key,
  value text not null,
  updated_at timestamptz not null default now()
);

-- A single row, inserted once: the process that inserts it makes the first workspace.
create table bootstrap (
  id integer primary key check (id = 1),
  created_at timestamptz not null default now()
);

-- The leadership fence, in a single row: a write of desired state with a lower number is refused.
create table leadership (
  id integer primary key check (id = 1),
  fence bigint not null
);
insert into leadership (id, fence) values (1, 0);

create table workspaces (
  id text primary key,                   -- the public name (external id)
  number bigint generated always as identity unique,
  name text not null,
  signing_key bytea not null,            -- sealed text, sk_…
  is_admin boolean not null default false,
  limits jsonb not null default '{}',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  deleting_at timestamptz,               -- null: it is not being deleted
  deletion_hold text not null default '' -- what the deletion waits for, for people; empty: nothing
);

-- Workspaces that are gone. Their audit lines and their ledger are kept under their ids.
create table deleted_workspaces (
  id text primary key,
  number bigint not null,
  name text not null,
  created_at timestamptz not null,
  deleted_at timestamptz not null default now()
);

-- Counters of what workspaces use of their quotas.
create table workspace_usage (
  day date not null,                     -- of UTC
  workspace_id text not null,
  log_bytes bigint not null default 0,   -- with LINE_OVERHEAD for each line
  primary key (day, workspace_id)
);

create table tokens (
  id text primary key,
  workspace_id text not null references workspaces (id) on delete cascade,
  hash bytea not null unique,            -- sha256 of the token; the token itself is nowhere
  hint text not null,                    -- its last 4 characters
  type text not null,
  active boolean not null default true,
  reusable boolean not null default true,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  key_id text,                           -- the signing key; null: the installation's first one
  name text not null default '',
  expires_at timestamptz,                -- null: never
  last_used_at timestamptz,              -- at most once a minute; null: never
  scopes text not null default '',       -- invoke, read, with a comma between them; empty: all
  app_id text                            -- the only app for which it counts; null: any
);
create index tokens_by_workspace on tokens (workspace_id, created_at desc);

-- Values that containers get as variables and nobody reads back.
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
