-- The file that a shared pool's settings come from; null: operations change them. `settings` holds the settings that
-- were given, except the over-commit, which has its own column.
-- Older code knows the over-commit alone, and is not disturbed.
alter table pools add column declared_in text;
