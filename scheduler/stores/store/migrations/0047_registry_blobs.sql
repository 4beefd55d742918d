-- Blobs, manifests and unfinished uploads that the managed registry has of each workspace. Machines sent them, and no
-- image needs to name them. Old code writes no rows, so its pushes are not counted; nobody else reads
-- images.registry_layers from now on.
create table registry_blobs (
  workspace_id text not null references workspaces (id) on delete cascade,
  name text not null,                    -- 'sha256:…', 'manifest sha256:…', 'upload …', or 'begun …'
  bytes bigint not null,
  writer text,                           -- the request that writes an upload now, or broke off while it did
  touched_at timestamptz not null default now(), -- the last write, or the last time that the registry was seen to have it
  primary key (workspace_id, name)
);
create index registry_blobs_by_touch on registry_blobs (touched_at);
insert into registry_blobs (workspace_id, name, bytes)
  select i.workspace_id, l.key, max(l.value::bigint) from images i, jsonb_each_text(i.registry_layers) l group by 1, 2;
