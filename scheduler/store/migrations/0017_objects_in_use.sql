-- When somebody last meant to use an object: to upload, ask for or name it. What nothing refers to goes some days after that (objects/collector.ts). Schedulers of the version before do not write it: what they
-- are told of counts from this migration on.

alter table objects add column touched_at timestamptz not null default now();
create index objects_by_touch on objects (touched_at);
create index stubs_by_object on stubs (object_id) where object_id is not null;
create index tasks_by_result_object on tasks (result_object_id) where result_object_id is not null;
