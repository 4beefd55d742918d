-- Browsers that are signed in to the web console, and links that sign one in. The secrets themselves are nowhere.
create table console_sessions (
  id text primary key,
  workspace_id text not null references workspaces (id) on delete cascade,
  token_id text not null references tokens (id) on delete cascade,
  link_hash bytea unique,                -- sha256 of a link's code that nobody has entered; null: entered
  cookie_hash bytea unique,              -- sha256 of the cookie; null: not entered
  key_hash bytea,                        -- sha256 of the key that the page sends; null: not entered
  address text not null default '',      -- where it was entered from
  created_at timestamptz not null,
  used_at timestamptz not null,          -- at most once a minute
  expires_at timestamptz not null,       -- moves on with each use, up to ends_at
  ends_at timestamptz not null
);
create index console_sessions_by_token on console_sessions (token_id, used_at desc, id desc);
create index console_sessions_by_workspace on console_sessions (workspace_id);
create index console_sessions_by_age on console_sessions (expires_at);
