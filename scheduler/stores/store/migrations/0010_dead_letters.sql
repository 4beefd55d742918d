-- A task that failed for good is dead while its input is kept: it is listed, and may be redriven once.
alter table task_inputs add column dead_until timestamptz;  -- null: its task is not dead
alter table tasks add column redriven_from text;            -- the dead task that this one stands for
