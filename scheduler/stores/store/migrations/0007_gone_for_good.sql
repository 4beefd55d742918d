-- Deleted deployments and machines, and stubs that nobody uses, go once nothing else tells of them.
alter table stubs add column touched_at timestamptz not null default now(); -- last asked for, or found in use
create index stubs_by_touch on stubs (touched_at);
create index deployments_deleted on deployments (deleted_at) where deleted_at is not null;
create index machines_deleted on machines (deleted_at) where deleted_at is not null;
