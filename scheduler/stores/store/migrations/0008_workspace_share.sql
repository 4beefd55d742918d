-- The weight of a workspace, and its amounts by market (`scheduler/domain/shares.ts`). null: the default. Code from
-- before this file does not read the column.
alter table workspaces add column share jsonb;
