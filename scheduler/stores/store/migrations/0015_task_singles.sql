-- The open task of a key, where flow control gathers the calls of a key or lets a key have one task. The row outlives
-- its task for a while, and means nothing then.
create table task_singles (
  queue text not null,
  key text not null,
  workspace_id text not null,
  task_id text not null,
  claimed_at timestamptz not null default now(),   -- the task's own row is written later
  primary key (queue, key)
);
create index task_singles_by_age on task_singles (claimed_at);
