-- The first schema: the installation, its callers, the things they made, where those run, and their results.
-- Public ids are text; times are timestamptz. Rows that are written after the fact (containers, tasks, log lines) carry
-- ids without foreign keys. A late record therefore never fails because its deployment is gone.

create table installation (
  id integer primary key check (id = 1),
  signing_key bytea not null,            -- sealed
  ca_cert text not null,                 -- PEM
  ca_key bytea not null,                 -- sealed PKCS #8
  created_at timestamptz not null default now()
);

create table workspaces (
  id text primary key,                   -- the public name (external id)
  number bigint generated always as identity unique,
  name text not null,
  signing_key bytea not null,            -- sealed text, sk_…
  is_admin boolean not null default false,
  limits jsonb not null default '{}',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);

-- A single row, inserted once: the process that inserts it makes the first workspace.
create table bootstrap (
  id integer primary key check (id = 1),
  created_at timestamptz not null default now()
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
  updated_at timestamptz not null default now()
);
create index tokens_by_workspace on tokens (workspace_id, created_at desc);

create table apps (
  id text primary key,
  workspace_id text not null references workspaces (id) on delete cascade,
  name text not null,
  description text not null default '',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  deleted_at timestamptz
);
create unique index apps_by_name on apps (workspace_id, name) where deleted_at is null;

create table objects (
  id text primary key,
  workspace_id text not null references workspaces (id) on delete cascade,
  hash text not null,                    -- the client's key, never checked
  size bigint not null,                  -- announced, then as received
  sha256 text,                           -- of the bytes as received; null until then
  uploaded_at timestamptz,
  created_at timestamptz not null default now(),
  unique (workspace_id, hash)
);

create table stubs (
  id text primary key,
  workspace_id text not null references workspaces (id) on delete cascade,
  app_id text not null references apps (id),
  name text not null,
  type text not null,
  object_id text references objects (id),
  config jsonb not null,
  config_hash text not null,
  config_version integer not null default 1,
  public boolean not null default false,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
create index stubs_by_reuse on stubs (workspace_id, app_id, name, type, config_hash);
create index stubs_by_workspace on stubs (workspace_id, created_at desc);

-- The highest version ever given; survives the deletion of deployments.
create table deployment_versions (
  workspace_id text not null references workspaces (id) on delete cascade,
  name text not null,
  stub_type text not null,
  last_version integer not null,
  primary key (workspace_id, name, stub_type)
);

create table deployments (
  id text primary key,
  workspace_id text not null references workspaces (id) on delete cascade,
  app_id text not null references apps (id),
  stub_id text not null references stubs (id),
  name text not null,
  stub_type text not null,
  version integer not null,
  active boolean not null default true,
  subdomain text not null,
  scale_min integer,                     -- written by Scale; null: the stub's own
  scale_max integer,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  deleted_at timestamptz,
  unique (workspace_id, name, stub_type, version)
);
create index deployments_by_workspace on deployments (workspace_id, created_at desc) where deleted_at is null;
create index deployments_by_subdomain on deployments (subdomain, version) where deleted_at is null;
create index deployments_by_stub on deployments (stub_id);
create index deployments_live on deployments (id) where active and deleted_at is null;

create table pools (
  id bigint generated always as identity primary key,
  name text not null,
  workspace_id text references workspaces (id) on delete cascade,   -- null: shared
  cpu_overcommit double precision not null default 1,
  settings jsonb not null default '{}',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  unique nulls not distinct (workspace_id, name)
);

create table machines (
  id text primary key,                   -- 8 hex characters
  pool_id bigint not null references pools (id),
  intent text not null default 'active',
  health text not null default 'PENDING',
  conditions jsonb not null default '[]',
  system_cordon boolean not null default false,
  join_secret_hash bytea unique,
  join_expires_at timestamptz,
  join_nonce text,
  joined_at timestamptz,
  fingerprint text,
  public_key text,
  credential_version integer not null default 0,
  hostname text,
  inventory jsonb,
  boot_id text,
  agent_version text,
  session_epoch bigint not null default 0,
  last_seen_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  deleted_at timestamptz
);
create index machines_by_pool on machines (pool_id) where deleted_at is null;

create table containers (
  id text primary key,                   -- {kind}-{stubId}-{8 hex}
  workspace_id text not null,
  stub_id text not null,
  deployment_id text,
  state text not null,
  machine_id text,
  assignment_id text,
  epoch bigint not null default 0,
  spec jsonb not null,
  slots integer not null,
  frozen boolean not null default false,
  start_failures integer not null default 0,
  reason text,                           -- why it stops, stopped or failed
  exit_code integer,
  message text,
  rejections jsonb,                      -- why no machine took it, counted by reason
  created_at timestamptz not null default now(),
  scheduled_at timestamptz,
  started_at timestamptz,
  ended_at timestamptz,
  updated_at timestamptz not null default now(),
  revision bigint not null default 1
);
create index containers_live on containers (created_at) where state not in ('STOPPED', 'FAILED', 'LOST');
create index containers_by_stub on containers (stub_id, created_at desc);
create index containers_by_workspace on containers (workspace_id, created_at desc);
create index containers_by_machine on containers (machine_id) where machine_id is not null;
create index containers_by_end on containers (ended_at) where ended_at is not null;

create table tasks (
  id text primary key,
  workspace_id text not null,
  stub_id text not null,
  deployment_id text,
  queue text not null,
  kind text not null,
  sync boolean not null,
  status text not null,
  attempt integer not null,
  rank integer not null,                 -- 0 pending, 1 running, 2 retry, 3 terminal, 4 late complete
  container_id text,
  failure_reason text not null default '',
  job text,                              -- the queue entry it is rebuilt from; asynchronous tasks until they end
  result text,
  result_object_id text,
  created_at timestamptz not null,
  started_at timestamptz,
  ended_at timestamptz,
  updated_at timestamptz not null default now(),
  deadline_at timestamptz,
  duration_ms double precision
);
create index tasks_by_workspace on tasks (workspace_id, created_at desc, id desc);
create index tasks_by_stub on tasks (stub_id, created_at desc);
create index tasks_by_container on tasks (container_id) where container_id is not null;
create index tasks_open on tasks (queue, created_at) where rank < 3;
create index tasks_by_age on tasks using brin (created_at);

create table log_lines (
  id bigint generated always as identity primary key,
  workspace_id text not null,
  stub_id text not null,
  deployment_id text,
  container_id text not null,
  task_id text,
  stream text not null,
  line text not null,
  at timestamptz not null
);
create index log_lines_by_container on log_lines (container_id, id);
create index log_lines_by_task on log_lines (task_id, id) where task_id is not null;
create index log_lines_by_deployment on log_lines (deployment_id, id) where deployment_id is not null;
create index log_lines_by_stub on log_lines (stub_id, id);
create index log_lines_by_age on log_lines using brin (at);
