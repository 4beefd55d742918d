-- Containers on a machine that no row places there. The list is stored
-- because the machine may be linked to another replica than the leader.
-- Code of the version before does not write it and is not disturbed.

alter table machines add column strangers jsonb not null default '[]';
