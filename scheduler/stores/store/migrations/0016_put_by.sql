-- A task that a container put can be read by the containers of its stub.
alter table tasks add column put_by text;
