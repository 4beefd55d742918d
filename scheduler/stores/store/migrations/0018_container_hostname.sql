-- Hostname of a task's container, as EndTask reports it.
alter table tasks add column container_hostname text;
