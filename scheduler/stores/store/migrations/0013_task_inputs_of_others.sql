-- The other inputs, which go first when a workspace has too many.
-- concurrently
create index task_inputs_of_others on task_inputs (workspace_id, kept_at desc, task_id desc) include (bytes) where dead_until is null;
