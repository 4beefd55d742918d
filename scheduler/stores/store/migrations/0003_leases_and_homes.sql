-- Facts that a new leader needs without asking anybody: the devices of each container, its state before it became
-- UNKNOWN, and the machine that holds a volume's directory.
-- Code of the version before writes none of these and is not disturbed.

alter table containers add column gpu_uuids jsonb not null default '[]';   -- leased with the placement; kept as history once the container is gone
alter table containers add column state_before text;                       -- while UNKNOWN
alter table volumes add column home_machine_id text;                       -- null: nothing was placed with it yet
