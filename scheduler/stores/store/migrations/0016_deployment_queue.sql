-- Whether the queue of a deployment is paused, and the most of its tasks that run at a time.
alter table deployments add column queue_paused boolean not null default false;
alter table deployments add column queue_limit integer;   -- null: any number
