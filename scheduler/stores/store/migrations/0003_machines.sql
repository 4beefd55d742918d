-- Machines: their pools, how they join, and those that providers make.
create table pools (
  id bigint generated always as identity primary key,
  name text not null,
  workspace_id text references workspaces (id) on delete cascade,   -- null: shared
  cpu_overcommit double precision not null default 1,
  settings jsonb not null default '{}',  -- that were given, except the over-commit
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  deleted_at timestamptz,
  declared_in text,                      -- the file that a shared pool comes from; null: operations change it
  unique nulls not distinct (workspace_id, name)
);

-- The leader adds a row for each pool every five seconds.
create table pool_samples (
  step integer not null,                 -- seconds: 5, 60 or 300
  at timestamptz not null,
  pool_id bigint not null,
  samples integer not null,
  machines double precision not null,
  containers double precision not null,
  gpus double precision not null,
  free_gpus double precision not null,
  cpu_used double precision not null,    -- millicores of machines that report their use, as are the next five
  cpu_total double precision not null,
  memory_used double precision not null,
  memory_total double precision not null,
  disk_used double precision not null,
  disk_total double precision not null,
  hourly_cost double precision not null,
  primary key (step, pool_id, at)
) with (fillfactor = 80);
create index pool_samples_by_age on pool_samples (step, at);

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
  deleted_at timestamptz,
  replica text,                          -- instance of the scheduler process that holds its link, or held the last one
  strangers jsonb not null default '[]', -- containers on it that no row places there
  goodbye text,                          -- why its agent left, until it is back: null, restarting, shutdown
  credential_next integer,               -- given at a renewal and not used yet
  credential_next_at timestamptz,
  agent_instances jsonb not null default '[]', -- the last four agents that said hello, newest last
  contested_at timestamptz,              -- when one of them came back after another had taken its place
  drain_deadline_at timestamptz,
  drain_total integer,
  host_drain_until timestamptz,          -- how long a host that goes down waits
  delete_at timestamptz,                 -- of a forced deletion
  enrolment_token_id text,               -- null: it joined by a token of its own
  host_identity jsonb,                   -- instance, UUID and cards of its host; null: not shown yet
  refused_at timestamptz,                -- when another host last came with this machine's disk
  refused_words text,                    -- which host that was, for people
  placements bigint not null default 0   -- grows with each statement that places containers there: two never overlap
);
create index machines_by_pool on machines (pool_id) where deleted_at is null;
create index machines_unjoined on machines (join_expires_at) where joined_at is null;
create index machines_by_enrolment_token on machines (enrolment_token_id) where deleted_at is null;

-- Enrolment tokens, by which many hosts join a pool, with their bound and expiry.
create table enrolment_tokens (
  id text primary key,
  pool_id bigint not null references pools (id),
  workspace_id text references workspaces (id), -- owner, as of the pool; null: shared
  name text not null,
  secret_hash bytea not null unique,            -- sha256; the secret is stored nowhere
  max_machines integer not null,                -- machines that there may be by it at once
  expires_at timestamptz not null,
  revoked_at timestamptz,
  last_used_at timestamptz,
  joined bigint not null default 0,             -- machines that ever joined by it
  created_by text not null,                     -- name of the token that made it, else its id
  created_at timestamptz not null default now()
);
create index enrolment_tokens_by_owner on enrolment_tokens (workspace_id, created_at);

-- Machines that providers make for pools, and the last calls of the providers' programs. A row is written before each
-- effect that it announces. Ids of pools and machines have no foreign keys: a row outlives its machine.
create table provisioned_machines (
  request_id uuid primary key,             -- tag of the instance
  pool_id integer not null,
  machine_id text not null,
  provider text not null,
  state text not null,                     -- requested, creating, created, joined, leaving, terminating; gone, failed
  shape json not null,
  reason text not null default '',         -- why the pool grew
  join_token bytea,                        -- sealed; null: not needed any more
  instance_id text,                        -- null: not known
  address text,
  hourly_cost double precision,            -- null: not known
  ends_at timestamptz,                     -- when the provider takes the instance back
  creates integer not null default 0,      -- calls of create that began
  called_at timestamptz,                   -- begin of the last call of create or terminate
  terminated_at timestamptz,               -- end of the last terminate that succeeded
  failures integer not null default 0,     -- failed calls since the last change of state
  failed_at timestamptz,
  failure text,
  end_why text,                            -- why it leaves or left
  drain_until timestamptz,
  revision integer not null default 1,
  requested_at timestamptz not null,
  created_at timestamptz,
  joined_at timestamptz,
  ended_at timestamptz                     -- gone or failed since
);
create index provisioned_machines_by_end on provisioned_machines (ended_at);

create table provider_calls (
  provider text primary key,
  called_at timestamptz not null,          -- end of the last call
  verb text not null,
  failure text,                            -- of the last call; null: it succeeded
  failures integer not null default 0,     -- calls in a row that failed
  listed_at timestamptz,                   -- last complete listing
  instances integer                        -- in that listing
);
