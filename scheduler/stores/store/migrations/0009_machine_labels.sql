-- Labels that an operator gave a machine. Those of its agent are in its inventory, those of its pool in the settings.
-- Code from before this file does not read the column.
alter table machines add column labels jsonb not null default '{}';
