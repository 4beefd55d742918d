alter table machines add column credential_next integer;               -- given at a renewal and not used yet
alter table machines add column credential_next_at timestamptz;
alter table machines add column agent_instances jsonb not null default '[]';  -- the last four agents that said hello, newest last
alter table machines add column contested_at timestamptz;                 -- when one of them came back after another had taken its place
