-- The file that a shared pool's settings come from; null: they are changed by operations. `settings` holds what was said, but for the over-commit, which has its column.
-- Older code knows the over-commit alone, and lives with this.
alter table pools add column declared_in text;
