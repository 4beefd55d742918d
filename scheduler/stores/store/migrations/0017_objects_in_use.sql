-- When an object was last meant to be used: uploaded, asked for or named. An object that nothing
-- refers to is deleted some days after that (objects/collector.ts). Schedulers of the version before
-- do not write the column. An object that only they use counts as last used at this migration.

alter table objects add column touched_at timestamptz not null default now();
create index objects_by_touch on objects (touched_at);
create index stubs_by_object on stubs (object_id) where object_id is not null;
create index tasks_by_result_object on tasks (result_object_id) where result_object_id is not null;
