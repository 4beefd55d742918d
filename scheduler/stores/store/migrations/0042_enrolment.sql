-- Enrolment tokens, by which many hosts join a pool, and the identity of each machine's host.
-- Older schedulers can run beside this; they refuse these tokens, and check no identity.
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

alter table machines
  add column enrolment_token_id text,           -- null: it joined by a token of its own
  add column host_identity jsonb,               -- instance, UUID and cards of its host; null: not shown yet
  add column refused_at timestamptz,            -- when another host last came with this machine's disk
  add column refused_words text;                -- which host that was, for people
create index machines_by_enrolment_token on machines (enrolment_token_id) where deleted_at is null;
