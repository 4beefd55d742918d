-- Schedules: ticks up to here have their tasks, or were skipped. Stands still while the deployment is stopped, and begins anew when it is started. Of other kinds it says nothing.
alter table deployments add column ticked_to timestamptz not null default now();
create index deployments_schedules on deployments (id) where active and deleted_at is null and stub_type in ('schedule', 'schedule/deployment');
