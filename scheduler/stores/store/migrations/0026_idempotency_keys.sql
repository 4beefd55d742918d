-- The task that an Idempotency-Key stands for. A row is written before its task is queued. The key is accepted in the
-- commit of an asynchronous task, or after a synchronous one was queued.
-- Code of the version before does not read keys: calls that it takes run without them.
create table idempotency_keys (
  workspace_id text not null,             -- whose deployment is called
  scope text not null,                    -- who calls and what: a deployment's kind and name, one version of it, or a stub
  key text not null,
  is_own boolean not null,                -- the caller has a token of that workspace
  fingerprint text not null,              -- of the body and the query parameters
  task_id text not null,
  deployment_id text,                     -- the version that has the task; null: a stub without one
  is_accepted boolean not null default false,
  claimed_at timestamptz not null default now(),
  expires_at timestamptz not null,
  primary key (workspace_id, scope, key)
);
create index idempotency_keys_by_expiry on idempotency_keys (expires_at);

-- A row whose write shows whether commits succeed again.
create table commit_probe (id integer primary key, written_at timestamptz not null);
