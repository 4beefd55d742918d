-- Webhooks: addresses that a workspace's events are sent to. A webhook has a cursor into the events instead of a row
-- for each event: writing an event costs nothing more for it. Outcomes are written in batches and kept for a while.
create table webhooks (
  id text primary key,
  workspace_id text not null references workspaces (id),
  url text not null,
  event_types json not null,             -- filters as given; an empty list: everything that is eligible
  description text not null default '',
  active boolean not null default true,
  inactive_reason text not null default '',
  retry boolean not null default false,
  secret_hint text not null,
  cursor_seq bigint not null,            -- events up to this number are done with
  skipped bigint not null default 0,     -- events passed over because there were too many
  last_delivery json,
  created_at timestamptz not null default date_trunc('milliseconds', now()),
  updated_at timestamptz not null default date_trunc('milliseconds', now())
);
create index webhooks_by_workspace on webhooks (workspace_id, updated_at desc, id desc);
create index webhooks_active on webhooks (workspace_id) where active;

-- Secrets that sign: the newest, and older ones for a day after a rotation.
create table webhook_secrets (
  id text primary key,
  webhook_id text not null references webhooks (id) on delete cascade,
  sealed bytea not null,
  created_at timestamptz not null default now(),
  signs_until timestamptz                -- null: the newest
);
create index webhook_secrets_by_webhook on webhook_secrets (webhook_id, created_at desc);

create table webhook_deliveries (
  id text primary key,
  webhook_id text not null references webhooks (id) on delete cascade,
  event_seq bigint,                      -- null: a test, which is no event of the workspace
  event_id text not null,
  event_type text not null,
  subject text not null,                 -- events of one subject are sent in order
  state text not null,                   -- delivered, failed, waiting
  attempts integer not null,
  status_code integer,
  error text not null default '',
  duration_ms integer,
  due_at timestamptz,                    -- next try; null: over
  created_at timestamptz not null,       -- end of the first try
  updated_at timestamptz not null
);
-- An event has one row: a leader that died may have sent it before.
create unique index webhook_deliveries_by_event on webhook_deliveries (webhook_id, event_id);
create index webhook_deliveries_by_webhook on webhook_deliveries (webhook_id, created_at desc, id desc);
create index webhook_deliveries_waiting on webhook_deliveries (webhook_id, subject, event_seq) where due_at is not null;
create index webhook_deliveries_due on webhook_deliveries (due_at) where due_at is not null;
create index webhook_deliveries_by_age on webhook_deliveries (updated_at) where due_at is null;
