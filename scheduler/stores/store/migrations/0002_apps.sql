-- Things that workspaces made: apps, their versions, files and images.
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

create table objects (
  id text primary key,
  workspace_id text not null references workspaces (id) on delete cascade,
  hash text not null,                    -- the client's key, never checked
  size bigint not null,                  -- announced, then as received
  sha256 text,                           -- of the bytes as received; null until then
  uploaded_at timestamptz,
  created_at timestamptz not null default now(),
  touched_at timestamptz not null default now(), -- last uploaded, asked for or named (objects/collector.ts)
  reserved bigint not null default 0,    -- bytes that an upload under way may store; 0: no more than size
  unique (workspace_id, hash)
);
create index objects_by_touch on objects (touched_at);
create index objects_by_workspace on objects (workspace_id) include (hash, size, reserved);

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
create index stubs_by_object on stubs (object_id) where object_id is not null;

-- The highest version ever given; survives the deletion of deployments.
create table deployment_versions (
  workspace_id text not null references workspaces (id) on delete cascade,
  name text not null,
  stub_type text not null,
  last_version integer not null,
  primary key (workspace_id, name, stub_type)
);

-- Calls of a name reach its highest version whose `rollout` is null or done.
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
  image_digest text not null default '', -- what its image meant when it was deployed
  ticked_to timestamptz not null default now(), -- ticks of a schedule up to then have their tasks, or were skipped
  superseded_by integer,                 -- the version that took its place; null: none, or started or stopped since
  rollout text,                          -- null: none; waiting, done, failed, stopped, superseded, withdrawn
  rollout_since timestamptz,             -- when it began
  rollout_why text not null default '',
  unique (workspace_id, name, stub_type, version)
);
create index deployments_by_workspace on deployments (workspace_id, created_at desc) where deleted_at is null;
create index deployments_by_subdomain on deployments (subdomain, version) where deleted_at is null;
create index deployments_by_stub on deployments (stub_id);
create index deployments_live on deployments (id) where active and deleted_at is null;
create index deployments_schedules on deployments (id)
  where active and deleted_at is null and stub_type in ('schedule', 'schedule/deployment');
create index deployments_rolling_out on deployments (id) where rollout = 'waiting';

-- Directories that outlive containers.
create table volumes (
  id text primary key,
  workspace_id text not null references workspaces (id) on delete cascade,
  name text not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  home_machine_id text,                  -- null: nothing was placed with it yet
  driver text not null default 'local',  -- local, shared, nfs; never changes
  unique (workspace_id, name)
);

-- Images that workspaces define, and the machines that have them.
create table images (
  id text primary key,                     -- the image's name: a hash of its workspace and its definition
  workspace_id text not null references workspaces (id) on delete cascade,
  definition jsonb not null,               -- steps, version of Python, object with files
  state text not null default 'PENDING',   -- PENDING, BUILDING, READY, FAILED
  owner text,                              -- the scheduler process that has the build
  renewed_at timestamptz,                  -- the owner's last sign of life
  forced boolean not null default false,   -- the next build uses no layer again
  output text not null default '',         -- of the last build; its end, where it is long
  error text not null default '',
  created_at timestamptz not null default now(),
  built_at timestamptz,
  used_at timestamptz not null default now(),
  registry_digest text not null default '', -- empty: it is in no registry
  push_error text not null default '',   -- why it is in no registry
  push_tried_at timestamptz
);
create index images_by_workspace on images (workspace_id, created_at desc);
create index images_by_use on images (used_at);
-- An image keeps the object with its files, from which it is built again.
create index images_by_context on images (lower(definition->>'contextObjectId'))
  where definition->>'contextObjectId' <> '';

create table image_machines (
  image_id text not null references images (id) on delete cascade,
  machine_id text not null,
  size_bytes bigint not null,
  built_at timestamptz not null default now(),
  primary key (image_id, machine_id)
);
create index image_machines_by_machine on image_machines (machine_id);

-- Blobs, manifests and unfinished uploads that the managed registry has of each workspace. Machines sent them, and no
-- image needs to name them.
create table registry_blobs (
  workspace_id text not null references workspaces (id) on delete cascade,
  name text not null,                    -- 'sha256:…', 'manifest sha256:…', 'upload …', or 'begun …'
  bytes bigint not null,
  writer text,                           -- the request that writes an upload now, or broke off while it did
  touched_at timestamptz not null default now(), -- the last write, or the last time that the registry was seen to have it
  primary key (workspace_id, name)
);
create index registry_blobs_by_touch on registry_blobs (touched_at);
