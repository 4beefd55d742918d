-- A drain ends at a moment, not after a span that begins anew with each scheduler; a host that goes down says how long it waits; a forced deletion happens at a moment, too. Pools can go.
alter table machines add column drain_deadline_at timestamptz;
alter table machines add column drain_total integer;
alter table machines add column host_drain_until timestamptz;
alter table machines add column delete_at timestamptz;
alter table pools add column deleted_at timestamptz;
