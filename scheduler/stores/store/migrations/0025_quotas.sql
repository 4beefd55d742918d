-- Counters of what workspaces use of their quotas. Code of the version before
-- does not write them and is not disturbed; lines that it writes are not counted.

create table workspace_usage (
  day date not null,                     -- of UTC
  workspace_id text not null,
  log_bytes bigint not null default 0,   -- with LINE_OVERHEAD for each line
  primary key (day, workspace_id)
);
create index if not exists objects_by_size on objects (workspace_id, size);
create index if not exists tasks_queued on tasks (workspace_id) where rank < 3 and job is not null;
