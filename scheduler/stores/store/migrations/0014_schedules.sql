-- Schedules: ticks up to this moment have their tasks, or were skipped. The moment stands still while the deployment is
-- stopped, and is set anew when it is started. The column means nothing for other kinds of deployments.
alter table deployments add column ticked_to timestamptz not null default now();
create index deployments_schedules on deployments (id) where active and deleted_at is null and stub_type in ('schedule', 'schedule/deployment');
