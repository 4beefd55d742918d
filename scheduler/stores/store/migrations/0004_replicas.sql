-- Several scheduler processes on one database: the replica that a machine is linked to, and the highest fencing number
-- that ever led. Code of the version before writes neither and is not disturbed.

alter table machines add column replica text;   -- instance of the scheduler process that holds its link, or held the last one

-- The leadership fence, in a single row: a write of desired state with a lower number is refused.
create table leadership (
  id integer primary key check (id = 1),
  fence bigint not null
);
insert into leadership (id, fence) values (1, 0);
