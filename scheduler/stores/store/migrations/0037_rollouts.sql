-- Rollouts: calls of a name reach its highest version whose `rollout` is null or done. A scheduler of the release
-- before sends them to the highest version of all: deploy again once every scheduler is upgraded.
alter table deployments
  add column rollout text,              -- null: none; waiting, done, failed, stopped, superseded, withdrawn
  add column rollout_since timestamptz, -- when it began
  add column rollout_why text not null default '';
create index deployments_rolling_out on deployments (id) where rollout = 'waiting';
