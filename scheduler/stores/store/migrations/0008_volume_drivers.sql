-- How a volume's files are kept. Code of the version before takes every volume for a local one. Older code binds a
-- shared or nfs volume to the machine that mounts it first, which this version ignores.

alter table volumes add column driver text not null default 'local';       -- local, shared, nfs; never changes
