-- Containers of pods and sandboxes: the time that they may be unused, and ports that were exposed. A leader of the
-- version before stops containers that CreatePod made as surplus: update every replica before the first is made.
alter table containers add column ttl_seconds integer;                     -- null: not stopped for want of use
alter table containers add column expires_at timestamptz;                  -- ttl_seconds after the last use
alter table containers add column held_until timestamptz;                  -- while a stream into it is open
alter table containers add column exposed_ports jsonb not null default '[]';
create index containers_by_expiry on containers (expires_at)
  where expires_at is not null and state not in ('STOPPED', 'FAILED', 'LOST');
