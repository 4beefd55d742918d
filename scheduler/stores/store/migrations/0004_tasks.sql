-- Work and its traces: containers, tasks, log lines, samples. These rows are written after the fact, and carry
-- ids without foreign keys, so that a late record never fails because its deployment is gone.
create table containers (
  id text primary key,                   -- {kind}-{stubId}-{8 hex}
  workspace_id text not null,
  stub_id text not null,
  deployment_id text,
  state text not null,
  machine_id text,
  assignment_id text,
  epoch bigint not null default 0,
  spec jsonb not null,
  slots integer not null,
  frozen boolean not null default false,
  start_failures integer not null default 0,
  reason text,                           -- why it stops, stopped or failed
  exit_code integer,
  message text,
  rejections jsonb,                      -- why no machine took it, counted by reason
  created_at timestamptz not null default now(),
  scheduled_at timestamptz,
  started_at timestamptz,
  ended_at timestamptz,
  updated_at timestamptz not null default now(),
  revision bigint not null default 1,
  gpu_uuids jsonb not null default '[]', -- leased with the placement; kept as history once the container is gone
  state_before text,                     -- while UNKNOWN
  ttl_seconds integer,                   -- null: not stopped for want of use
  expires_at timestamptz,                -- ttl_seconds after the last use
  held_until timestamptz,                -- while a stream into it is open
  exposed_ports jsonb not null default '[]',
  cpu_millicores bigint not null generated always as (coalesce(ceil((spec ->> 'cpuMillicores')::numeric), 0)::bigint) stored,
  memory_bytes bigint not null generated always as (coalesce(ceil((spec ->> 'memoryBytes')::numeric), 0)::bigint) stored
);
create index containers_live on containers (created_at) where state not in ('STOPPED', 'FAILED', 'LOST');
create index containers_by_stub on containers (stub_id, created_at desc);
create index containers_by_workspace on containers (workspace_id, created_at desc);
create index containers_by_machine on containers (machine_id) where machine_id is not null;
create index containers_on_machine on containers (machine_id)
  where machine_id is not null and state not in ('STOPPED', 'FAILED', 'LOST');
create index containers_by_end on containers (ended_at) where ended_at is not null;
create index containers_by_expiry on containers (expires_at)
  where expires_at is not null and state not in ('STOPPED', 'FAILED', 'LOST');

-- GPUs of containers that have a place and have not ended. A statement that assigns a container inserts its rows, and
-- the statement that ends the container, or gives it back, deletes them. The key names the machine, because agents of
-- tenants' machines report UUIDs, too.
create table leased_gpus (
  machine_id text not null,
  uuid text not null,
  part integer not null,                 -- 0: the whole device
  container_id text not null,
  epoch bigint not null,                 -- of the container's assignment
  primary key (uuid, part, machine_id)
);
create index leased_gpus_by_container on leased_gpus (container_id);

-- Starts that failed in a row; each queue with such starts has
-- a row, so that the next leader continues from the same count.
create table breakers (
  queue text primary key,
  fence bigint not null,                 -- of the leader that wrote it; an older one's write changes nothing
  breaker jsonb not null,
  updated_at timestamptz not null default now()
);

create table tasks (
  id text primary key,
  workspace_id text not null,
  stub_id text not null,
  deployment_id text,
  queue text not null,
  kind text not null,
  sync boolean not null,
  status text not null,
  attempt integer not null,
  rank integer not null,                 -- 0 pending, 1 running, 2 retry, 3 terminal, 4 late complete
  container_id text,
  failure_reason text not null default '',
  job text,                              -- the queue entry it is rebuilt from; asynchronous tasks until they end
  result text,
  result_object_id text,
  created_at timestamptz not null,
  started_at timestamptz,
  ended_at timestamptz,
  updated_at timestamptz not null default now(),
  deadline_at timestamptz,
  duration_ms double precision,
  callback_url text,                     -- null: no callback
  put_by text,                           -- the stub whose container put it, which may read it
  container_hostname text,               -- as EndTask reports it
  called_by text,                        -- the workspace whose token called a public deployment of another
  past text,                             -- earlier attempts as the job had them: JSON, oldest first; null: none
  input_state text,                      -- kept, or why not; null: a synchronous call that did not fail
  input_bytes bigint,
  rerun_of text,                         -- the task whose input this one has
  owner text,                            -- the scheduler process that accepted it and adds its job; null: no queue of Redis
  replica text,                          -- the scheduler process where the caller of an open synchronous task waits
  told_in text                           -- the row of events that it shares with others; null: it has rows of its own
);
create index tasks_by_workspace on tasks (workspace_id, created_at desc, id desc);
create index tasks_by_stub on tasks (stub_id, created_at desc);
create index tasks_by_container on tasks (container_id) where container_id is not null;
create index tasks_open on tasks (queue, created_at) where rank < 3;
create index tasks_held on tasks (id) where rank < 3 and (sync or rank > 0);
create index tasks_by_owner on tasks (owner, created_at, id) where rank < 3 and owner is not null;
create index tasks_by_deadline on tasks (workspace_id, deadline_at)
  where rank < 3 and status <> 'RUNNING' and deadline_at is not null and queue <> 'deferred-calls';
create index tasks_by_age on tasks using brin (created_at);
create index tasks_by_result_object on tasks (result_object_id) where result_object_id is not null;
create index tasks_by_end on tasks ((coalesce(ended_at, created_at))) where rank >= 3;
create index tasks_queued on tasks (workspace_id) where rank < 3 and job is not null;
-- Reruns of a task are looked for when a filter chooses tasks to run again.
create index tasks_by_rerun on tasks (rerun_of) where rerun_of is not null;
create index tasks_by_caller on tasks (called_by, created_at desc, id desc) where called_by is not null;

-- The task that an Idempotency-Key stands for. A row is written before its task is queued. The key is accepted in the
-- commit of an asynchronous task, or after a synchronous one was queued.
create table idempotency_keys (
  workspace_id text not null,             -- whose deployment is called
  scope text not null,                    -- who calls and what: a deployment's kind and name, one version of it, or a stub
  key text not null,
  is_own boolean not null,                -- the caller has a token of that workspace
  fingerprint text not null,              -- of the body and the query parameters
  task_id text not null,
  deployment_id text,                     -- the version that has the task; null: a stub without one
  is_accepted boolean not null default false,
  claimed_at timestamptz not null default now(),
  expires_at timestamptz not null,
  primary key (workspace_id, scope, key)
);
create index idempotency_keys_by_expiry on idempotency_keys (expires_at);

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
create index task_outputs_by_workspace on task_outputs (workspace_id);

-- Values that handlers and programs of a workspace share: entries of maps, items of queues, and signals.
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

-- Log lines of a workspace get their ids in the order of commits. The statement that writes lines locks the workspace's
-- row here before it takes ids, until its commit. A live reader who has seen an id never finds a smaller one later.
create table log_clocks (
  workspace_id text primary key,
  turns bigint not null
);

-- A row holds lines that followed each other, of one container, task and stream. Its id is that of the last one; the
-- ids before it belong to the others. A row of joined lines is stored as it is up to half a page: by default values
-- above 2 KB are compressed, which costs more processor time than the lines do.
create table log_lines (
  id bigint generated always as identity (start with 64 increment by 64) primary key,
  workspace_id text not null,
  stub_id text not null,
  deployment_id text,
  container_id text not null,
  task_id text,
  stream text not null,
  line text not null,
  at timestamptz not null,
  line_count smallint not null default 1,
  after_ms integer[]                     -- of each line, milliseconds behind `at`; null: one line
) with (toast_tuple_target = 4080);
create index log_lines_by_container on log_lines (container_id, id);
create index log_lines_by_task on log_lines (task_id, id) where task_id is not null;
create index log_lines_by_deployment on log_lines (deployment_id, id) where deployment_id is not null;
create index log_lines_by_stub on log_lines (stub_id, id);
create index log_lines_by_age on log_lines using brin (at);
-- Log lines of a whole workspace in the order of arrival. Without this
-- index, a page of them or a search reads every workspace's lines.
create index log_lines_by_workspace on log_lines (workspace_id, id);

-- Samples of containers' resource use, and of pools. A sample is a row with step 5. Sums of samples over a minute, and
-- over an hour or five minutes, are rows of the same shape with a larger step. They are written with the samples that
-- they sum up. A read takes the largest step that its buckets allow, so that its cost follows its answer.
-- Every sum adds up the values of `samples` samples. Ids have no foreign keys: a sample outlives its container.
create table metric_samples (
  step integer not null,                 -- seconds: 5, 60 or 3600
  at timestamptz not null,               -- of the sample; of the begin of the minute or hour
  workspace_id text not null,
  stub_id text not null,
  container_id text not null,
  samples integer not null,
  interval_ms bigint not null,           -- time that the deltas cover
  cpu_millicores integer not null,       -- requested, as are the next two
  memory_bytes bigint not null,
  gpu_count integer not null,
  cpu_used bigint not null,              -- millicores, summed
  memory_rss bigint not null,
  memory_vms bigint not null,
  memory_swap bigint not null,
  gpu_memory_used bigint not null,
  gpu_memory_total bigint not null,
  disk_read bigint not null,             -- deltas, summed, as are the next five
  disk_write bigint not null,
  received_bytes bigint not null,
  sent_bytes bigint not null,
  received_packets bigint not null,
  sent_packets bigint not null,
  primary key (step, stub_id, at, container_id)
) with (fillfactor = 80);
create index metric_samples_by_workspace on metric_samples (step, workspace_id, at);
create index metric_samples_by_age on metric_samples (step, at);

-- Inputs of tasks that ended, for people who look at them and run them again. They have a retention of their own.
create table task_inputs (
  task_id text primary key,
  workspace_id text not null,
  deployment_id text,
  kept_at timestamptz not null default now(),
  bytes bigint not null,                 -- of the queue entry, or of the input where it is larger
  job text not null                      -- the queue entry; a large input is an object by the name of its task
);
create index task_inputs_by_age on task_inputs (kept_at);
create index task_inputs_by_workspace on task_inputs (workspace_id, kept_at desc, task_id desc) include (bytes);
create index task_inputs_by_deployment on task_inputs (deployment_id) where deployment_id is not null;
