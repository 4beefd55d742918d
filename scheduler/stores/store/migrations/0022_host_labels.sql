-- Holders of host labels. A label stays with the name that had it first, also when its deployments are deleted.
create table host_labels (
  label text primary key,
  workspace_id text not null references workspaces (id) on delete cascade,
  name text not null,
  stub_type text not null
);
create index host_labels_by_name on host_labels (workspace_id, name, stub_type);

insert into host_labels (label, workspace_id, name, stub_type)
select distinct on (subdomain) subdomain, workspace_id, name, stub_type from deployments order by subdomain, created_at, id;
