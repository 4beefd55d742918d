-- Starts that failed in a row; each queue with such starts has
-- a row, so that the next leader continues from the same count.

create table breakers (
  queue text primary key,
  fence bigint not null,                 -- of the leader that wrote it; an older one's write changes nothing
  breaker jsonb not null,
  updated_at timestamptz not null default now()
);
