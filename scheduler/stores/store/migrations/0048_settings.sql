-- Settings that the administrator changes while schedulers run. A row wins over the environment.
create table settings (
  name text primary key,
  value text not null,
  updated_at timestamptz not null default now()
);
