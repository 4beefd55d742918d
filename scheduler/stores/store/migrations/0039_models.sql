-- Models of hosted inference, each with the servers behind it. The workspace owns a model: its deployments and secrets
-- serve it. Every workspace may call a public one. A row is read and written whole.
create table models (
  id text primary key,
  workspace_id text not null references workspaces (id),
  name text not null,                    -- id of the catalog, as callers send it: org/name
  is_public boolean not null default false,
  active boolean not null default true,
  type text not null,                    -- chat, completion, embedding, rerank, image, custom
  prompt_micros bigint not null,         -- for a million tokens
  completion_micros bigint not null,     -- for a million tokens
  request_micros bigint not null,
  details json not null,                 -- fields that the catalog shows: context length, capabilities, schemas
  backends json not null,                -- list of servers, in the order given
  created_at timestamptz not null default date_trunc('milliseconds', now()),
  updated_at timestamptz not null default date_trunc('milliseconds', now())
);
create unique index models_by_name on models (workspace_id, name);
create unique index models_public on models (name) where is_public;
