-- A drain ends at a stored moment, not after a span that begins anew with each scheduler. A host that goes down says
-- how long it waits. A forced deletion has its moment, too. Pools can be deleted.
alter table machines add column drain_deadline_at timestamptz;
alter table machines add column drain_total integer;
alter table machines add column host_drain_until timestamptz;
alter table machines add column delete_at timestamptz;
alter table pools add column deleted_at timestamptz;
