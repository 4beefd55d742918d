-- Events of workspaces, and messages about them and about tasks to addresses that people named.
-- Events: what changed, told in order to history, live streams and webhooks. The number of an event comes
-- from the workspace's counter, in the transaction that writes the change. The counter's row stays locked until the
-- commit, so numbers are in the order of commits. Rows carry ids without foreign keys: an event outlives its subject.
create table event_counters (
  workspace_id text primary key,
  last_seq bigint not null
);

-- The changes of a task that one record shows are one row: it has the type `task`, and covers the numbers from
-- `seq - more` to `seq`. Readers see an event for each number.
create table events (
  workspace_id text not null,
  seq bigint not null,
  id text not null,                      -- 24 hex characters
  type text not null,
  at timestamptz not null,               -- when the change was made
  stored_at timestamptz not null default now(),
  app_id text,
  stub_id text,
  stub_type text,
  deployment_id text,
  task_id text,
  container_id text,
  machine_id text,                       -- the id of the machine's only worker, too
  data json not null,
  more smallint not null default 0,
  primary key (workspace_id, seq)
);
-- An event of a task has an id that follows from its change: a record that is written again tells nothing twice.
create unique index events_by_task on events (task_id, id) where task_id is not null;
-- Tasks that one container ended in one batch share a row. It has no task_id: the rows of its tasks name it.
create index events_of_tasks on events (id) where type = 'task' and task_id is null;
create index events_by_container on events (container_id, seq) where container_id is not null;
create index events_by_stub on events (stub_id, seq) where stub_id is not null;
create index events_by_app on events (app_id, seq) where app_id is not null;
create index events_by_type on events (workspace_id, type, seq);
create index events_by_age on events using brin (stored_at);

-- Where each export of events and log lines continues.
create table export_positions (
  source text not null,                  -- target and kind of rows, such as otlp:logs
  workspace_id text not null,
  position bigint not null,              -- the last number that was exported
  updated_at timestamptz not null default now(),
  primary key (source, workspace_id)
);

-- A row for each message, kept until some days after it ended.
create table deliveries (
  id text primary key,
  workspace_id text not null,
  kind text not null,                    -- task_callback
  subject text not null,                 -- id of the subject: the task
  event text not null,                   -- the reported event: the status that the task ended with
  url text not null,
  state text not null default 'waiting', -- waiting, delivered, failed, superseded
  claim integer not null default 0,      -- grows with each try that begins; the holder of an older one changes nothing
  attempts integer not null default 0,   -- tries that ended
  due_at timestamptz,                    -- the next try, or when one that began is given up; null: over
  outcome text not null default '',      -- of the last try
  http_status integer,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
create index deliveries_by_subject on deliveries (subject);
create index deliveries_over on deliveries (updated_at) where due_at is null;
-- Index of the workspaces with messages to send, and of each workspace's due ones, the longest due first.
create index deliveries_due_of_workspace on deliveries (workspace_id, due_at) where due_at is not null;
create index deliveries_by_workspace on deliveries (workspace_id) where due_at is null;

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
