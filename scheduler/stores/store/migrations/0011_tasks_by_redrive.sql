-- concurrently
create unique index tasks_by_redrive on tasks (redriven_from) where redriven_from is not null;
