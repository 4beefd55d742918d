-- Dead tasks of a workspace, those that ended last first.
-- concurrently
create index task_inputs_dead on task_inputs (workspace_id, kept_at desc, task_id desc) include (bytes, dead_until) where dead_until is not null;
