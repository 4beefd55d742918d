-- Log lines of a workspace get their ids in the order of commits. The statement that writes lines locks the workspace's
-- row here before it takes ids, until its commit. A live reader who has seen an id never finds a smaller one later.
-- Replicas of the version before write without the lock: live tails may miss lines of theirs until all are updated.
create table log_clocks (
  workspace_id text primary key,
  turns bigint not null
);
insert into log_clocks (workspace_id, turns) select id, 0 from workspaces;

-- Where each export of events and log lines continues.
create table export_positions (
  source text not null,                  -- events, logs
  workspace_id text not null,
  position bigint not null,              -- the last number that was exported
  updated_at timestamptz not null default now(),
  primary key (source, workspace_id)
);
