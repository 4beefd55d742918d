-- Models of hosted inference, each with the servers behind it. The workspace owns a model: its deployments and secrets
-- serve it. Every workspace may call a public one. A row is read and written whole.
create table models (
  id text primary key,
  workspace_id text not null references workspaces (id),
  name text not null,                    -- id of the catalog, as callers send it: org/name
  is_public boolean not null default false,
  active boolean not null default true,
  type text not null,                    -- chat, completion, embedding, rerank, image, custom
  prompt_micros bigint not null,         -- for a million tokens
  completion_micros bigint not null,     -- for a million tokens
  request_micros bigint not null,
  details json not null,                 -- fields that the catalog shows: context length, capabilities, schemas
  backends json not null,                -- list of servers, in the order given
  created_at timestamptz not null default date_trunc('milliseconds', now()),
  updated_at timestamptz not null default date_trunc('milliseconds', now())
);
create unique index models_by_name on models (workspace_id, name);
create unique index models_public on models (name) where is_public;

-- Credits of workspaces, and the ledger of what they used. Amounts are integers: micro-units of the installation's
-- currency. No row of the ledger is ever changed but a `lost` one, or deleted. Ids have no foreign keys: the ledger
-- outlives what it names, and a late entry never fails.
create table credit_accounts (
  workspace_id text primary key,           -- no row: postpaid, nothing used
  mode text not null default 'postpaid',   -- prepaid, postpaid
  balance_micros bigint not null default 0,-- grants less costs
  spend_limit_micros bigint,               -- costs of a calendar month of UTC; null: none
  spent_micros bigint not null default 0,  -- costs of spent_month
  spent_month text not null default '',    -- YYYY-MM
  revision bigint not null default 1,      -- grows with each change; Redis keeps the highest
  updated_at timestamptz not null default now()
);

create table credit_ledger (
  id bigint generated always as identity primary key,
  request_id text not null unique,         -- of a request; else `grant:…` or `compute:…`
  kind text not null,                      -- request, grant, compute
  workspace_id text not null,
  token_id text,
  model text,                              -- id of the catalog
  type text,
  prompt_tokens bigint not null default 0,
  completion_tokens bigint not null default 0,
  prompt_micros_per_million bigint not null default 0,
  completion_micros_per_million bigint not null default 0,
  request_micros bigint not null default 0,
  cost_micros bigint not null default 0,
  grant_micros bigint not null default 0,  -- negative: taken back
  stream boolean not null default false,
  status text not null,                    -- complete, aborted, failed, lost
  estimated boolean not null default false,
  container_id text,                       -- of compute, as are the next three
  stub_id text,
  container_ms bigint not null default 0,
  gpu_ms bigint not null default 0,        -- summed over the GPUs of the container
  note text not null default '',
  created_at timestamptz not null          -- end of the request
);
create index credit_ledger_by_workspace on credit_ledger (workspace_id, created_at);

-- Calls of models whose callers read the answer later (`Prefer: respond-async`). A row is the promise of such a call:
-- who runs it, and how it ended. People read the task of the same id in `tasks`.
create table deferred_calls (
  task_id text primary key,
  workspace_id text not null,            -- of the caller
  token_id text not null,
  request_id text not null,              -- of the ledger; all tries of a call have the same
  key_hash text,                         -- idempotency key; null: none
  fingerprint text not null,             -- of route and body, where there is a key
  put_by text,                           -- as in tasks
  request json not null,                 -- route, model and caller
  charge json not null,                  -- as the ledger is asked to hold it
  is_charged boolean not null,
  body text,                             -- JSON as it was sent; null once the call has ended
  body_bytes integer not null,
  state text not null default 'waiting', -- waiting, running, ended (the task may not be told yet), kept (for its key)
  attempt integer not null default 0,    -- grows with each try; fences its end
  losses integer not null default 0,     -- tries whose replica died
  delays integer not null default 0,     -- tries that found no room at the model
  owner text,                            -- replica of the try under way
  lease_until timestamptz,
  due_at timestamptz not null default now(),
  expires_at timestamptz not null,
  started_at timestamptz,                -- of the last try
  ending json,                           -- status, reason and result
  created_at timestamptz not null,
  ended_at timestamptz
);
create unique index deferred_calls_by_key on deferred_calls (token_id, key_hash) where key_hash is not null;
create index deferred_calls_open on deferred_calls (workspace_id, created_at) where state in ('waiting', 'running');
create index deferred_calls_ended on deferred_calls (ended_at) where state = 'ended';
create index deferred_calls_kept on deferred_calls (created_at) where state = 'kept';
create index deferred_calls_by_workspace on deferred_calls (workspace_id);
