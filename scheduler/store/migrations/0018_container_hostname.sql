-- What EndTask says of the host that its container ran on.
alter table tasks add column container_hostname text;
