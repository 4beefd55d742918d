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
