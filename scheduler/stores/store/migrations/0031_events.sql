-- Events of workspaces: what changed, told in order to history, live streams and webhooks. The number of an event comes
-- from the workspace's counter, in the transaction that writes the change. The counter's row stays locked until the
-- commit, so numbers are in the order of commits. Rows carry ids without foreign keys: an event outlives its subject.
create table event_counters (
  workspace_id text primary key,
  last_seq bigint not null
);

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
  primary key (workspace_id, seq)
);
-- An event of a task has an id that follows from its change: a record that is written again tells nothing twice.
create unique index events_by_task on events (task_id, id) where task_id is not null;
create index events_by_container on events (container_id, seq) where container_id is not null;
create index events_by_stub on events (stub_id, seq) where stub_id is not null;
create index events_by_app on events (app_id, seq) where app_id is not null;
create index events_by_type on events (workspace_id, type, seq);
create index events_by_age on events using brin (stored_at);
