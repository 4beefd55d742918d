-- The version that took a deployment's place and stopped it by that; null: no version has, or a person started or
-- stopped it since. Tasks in the queue of the superseded version are still served.
alter table deployments add column superseded_by integer;
