-- Reruns of a task are looked for when a filter chooses tasks to run again.
create index tasks_by_rerun on tasks (rerun_of) where rerun_of is not null;
