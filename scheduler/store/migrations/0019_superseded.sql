-- The version that took a deployment's place, and stopped it by that; null: nobody has, or a person started or stopped it since. What it has in its queue is still served.
alter table deployments add column superseded_by integer;
