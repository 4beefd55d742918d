-- Machines that providers make for pools, and the last calls of the providers' programs. A row is written before each
-- effect that it announces. Ids of pools and machines have no foreign keys: a row outlives its machine.
alter table installation add column tag uuid not null default gen_random_uuid(); -- tag of the installation's instances

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
