-- What a machine's agent has although no row places it there: another replica may lead than the one it is linked to.
-- Code of the version before does not write it and is not disturbed.

alter table machines add column strangers jsonb not null default '[]';
