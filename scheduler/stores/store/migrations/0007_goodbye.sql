-- The reason that an agent gave when it last left, until it is back: an agent that only restarts is waited for longer.
-- Code of the version before does not write it and is not disturbed.

alter table machines add column goodbye text;   -- null, restarting, shutdown
