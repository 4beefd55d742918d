-- Tasks that failed are few among those that ended, and people list them first.
-- concurrently
create index tasks_failed on tasks (workspace_id, created_at desc, id desc) where status in ('ERROR', 'TIMEOUT', 'CANCELLED', 'EXPIRED');
