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

-- The leader adds a row for each pool every five seconds.
create table pool_samples (
  step integer not null,                 -- seconds: 5, 60 or 300
  at timestamptz not null,
  pool_id bigint not null,
  samples integer not null,
  machines double precision not null,
  containers double precision not null,
  gpus double precision not null,
  free_gpus double precision not null,
  cpu_used double precision not null,    -- millicores of machines that report their use, as are the next five
  cpu_total double precision not null,
  memory_used double precision not null,
  memory_total double precision not null,
  disk_used double precision not null,
  disk_total double precision not null,
  hourly_cost double precision not null,
  primary key (step, pool_id, at)
) with (fillfactor = 80);
create index pool_samples_by_age on pool_samples (step, at);
