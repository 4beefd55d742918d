-- Images that workspaces define, and the machines that have them. Code of the version before builds none. A leader of
-- that version would start containers of such an image on any machine, where they fail with image_error.
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
  used_at timestamptz not null default now()
);
create index images_by_workspace on images (workspace_id, created_at desc);
create index images_by_use on images (used_at);

create table image_machines (
  image_id text not null references images (id) on delete cascade,
  machine_id text not null,
  size_bytes bigint not null,
  built_at timestamptz not null default now(),
  primary key (image_id, machine_id)
);
create index image_machines_by_machine on image_machines (machine_id);
