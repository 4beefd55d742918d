-- Keys that tokens are signed with, after the installation's first one. A token
-- names its key (`kid`). A token without that name was signed with the first key.
create table signing_keys (
  id text primary key,                   -- the `kid` of tokens
  number bigint generated always as identity unique,
  private_key bytea not null,            -- sealed PKCS #8
  created_at timestamptz not null default now(),
  retired_at timestamptz
);
alter table installation add column signing_key_retired_at timestamptz;
alter table tokens add column key_id text;
