-- The last batch of log lines of each machine that was written, with its lines in one statement: a batch that comes
-- again, because its acknowledgement was lost, writes nothing.
create table log_senders (
  machine_id text primary key references machines (id) on delete cascade,
  sender uuid not null,                  -- the agent's process, which numbers its batches from 1 on
  seq bigint not null
);
