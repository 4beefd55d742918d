-- Calls of models whose callers read the answer later (`Prefer: respond-async`). A row is the promise of such a call:
-- who runs it, and how it ended. People read the task of the same id in `tasks`. Old schedulers do not know these rows,
-- and end the tasks of this queue as lost: upgrade all of them.
create table deferred_calls (
  task_id text primary key,
  workspace_id text not null,            -- of the caller
  token_id text not null,
  request_id text not null,              -- of the ledger; all tries of a call have the same
  key_hash text,                         -- idempotency key; null: none
  fingerprint text not null,             -- of route and body, where there is a key
  put_by text,                           -- as in tasks
  request json not null,                 -- route, model and caller
  charge json not null,                  -- as the ledger is asked to hold it
  is_charged boolean not null,
  body text,                             -- JSON as it was sent; null once the call has ended
  body_bytes integer not null,
  state text not null default 'waiting', -- waiting, running, ended (the task may not be told yet), kept (for its key)
  attempt integer not null default 0,    -- grows with each try; fences its end
  losses integer not null default 0,     -- tries whose replica died
  delays integer not null default 0,     -- tries that found no room at the model
  owner text,                            -- replica of the try under way
  lease_until timestamptz,
  due_at timestamptz not null default now(),
  expires_at timestamptz not null,
  started_at timestamptz,                -- of the last try
  ending json,                           -- status, reason and result
  created_at timestamptz not null,
  ended_at timestamptz
);
create unique index deferred_calls_by_key on deferred_calls (token_id, key_hash) where key_hash is not null;
create index deferred_calls_open on deferred_calls (workspace_id, created_at) where state in ('waiting', 'running');
create index deferred_calls_ended on deferred_calls (ended_at) where state = 'ended';
create index deferred_calls_kept on deferred_calls (created_at) where state = 'kept';
