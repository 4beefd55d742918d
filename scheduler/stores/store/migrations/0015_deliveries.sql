-- Messages to addresses that people named: a row for each message, kept
-- until some days after it ended; and the address of a task's callback.
-- Code of the version before does not know of them. The leader alone writes down how tasks ended, whichever replica
-- ended them. While the leader has that version, no task has a callback, and ends that it wrote get none later.

alter table tasks add column callback_url text;   -- null: no callback

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
create index deliveries_due on deliveries (due_at) where due_at is not null;
create index deliveries_by_subject on deliveries (subject);
create index deliveries_over on deliveries (updated_at) where due_at is null;
