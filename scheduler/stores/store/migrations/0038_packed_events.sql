-- The changes of a task that one record shows are one row: it has the type `task`, and covers the numbers from
-- `seq - more` to `seq`. Readers see an event for each number. A replica of the version before shows such a row as one
-- event of an unknown kind, and as the leader it tells changes again: update every replica at once, or accept that.
alter table events add column more smallint not null default 0;
