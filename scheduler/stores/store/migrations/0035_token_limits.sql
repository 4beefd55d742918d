-- Names, expiry, last use and limits of tokens. A scheduler of the release before does not know them: make tokens that
-- are limited once every scheduler is upgraded.
alter table tokens
  add column name text not null default '',
  add column expires_at timestamptz,          -- null: never
  add column last_used_at timestamptz,        -- at most once a minute; null: never
  add column scopes text not null default '', -- invoke, read, with a comma between them; empty: all
  add column app_id text;                     -- the only app for which it counts; null: any
