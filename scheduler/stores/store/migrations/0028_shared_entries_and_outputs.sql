-- Values that handlers and programs of a workspace share: entries of maps, items of queues, and signals.
-- Code of the version before does not know the table.
create table shared_entries (
  id bigint generated always as identity primary key,
  workspace_id text not null,
  kind text not null,                     -- map, queue or signal
  name text not null,
  key text,                               -- of a map's entry; '' for a signal; null for an item of a queue
  encoding text not null,                 -- json or pickle: how the module wrote the value, which is never parsed here
  value text not null,
  bytes integer not null,                 -- of name, key and value
  put_by text,                            -- the stub whose container wrote it; null: a token of the workspace
  expires_at timestamptz not null
);
create unique index shared_entries_by_key on shared_entries (workspace_id, kind, name, key);
create index shared_entries_of_queues on shared_entries (workspace_id, name, id) where kind = 'queue';
create index shared_entries_by_workspace on shared_entries (workspace_id) include (bytes, expires_at);
create index shared_entries_by_expiry on shared_entries (expires_at);

-- Files that tasks saved. The bytes are objects of their stub, which are kept as long as a row names them.
create table task_outputs (
  id text primary key,
  workspace_id text not null,
  task_id text not null,
  object_id text not null,
  name text not null,
  created_at timestamptz not null default now()
);
create index task_outputs_by_task on task_outputs (task_id, created_at);
create index task_outputs_by_object on task_outputs (object_id);
create index task_outputs_by_age on task_outputs (created_at);
