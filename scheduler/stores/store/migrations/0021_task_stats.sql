-- Sums of tasks that ended, for each deployment or stub, five minutes and status. They are written with the records of
-- the tasks, so that nobody counts these.
create table task_stats (
  workspace_id text not null,
  bucket timestamptz not null,           -- start of the five minutes in which the tasks ended
  stub_id text not null,
  deployment_id text not null,           -- empty: of the stub itself
  status text not null,
  bins integer[] not null default '{}',  -- numbers of tasks by spans (domain/task-histogram.ts): 24 bins from creation
                                         -- to start, or to the end; then 24 from start to end, of those that started
  primary key (workspace_id, bucket, stub_id, deployment_id, status)
);
create index task_stats_by_stub on task_stats (stub_id, bucket);
create index task_stats_by_age on task_stats (bucket);
