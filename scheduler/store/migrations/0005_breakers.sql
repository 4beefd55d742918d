-- Starts that failed in a row, one row for each queue that has some: whoever leads next goes on where the last leader was.

create table breakers (
  queue text primary key,
  fence bigint not null,                 -- of the leader that wrote it; an older one's write changes nothing
  breaker jsonb not null,
  updated_at timestamptz not null default now()
);
