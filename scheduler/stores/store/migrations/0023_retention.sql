-- Indexes by which the leader finds rows that are old enough to be deleted.
-- Code of the version before does not know of them and is not disturbed.
create index if not exists tasks_by_end on tasks ((coalesce(ended_at, created_at))) where rank >= 3;
create index if not exists machines_unjoined on machines (join_expires_at) where joined_at is null;
