-- A row holds lines that followed each other, of one container, task and stream. Its id is that of the last one; the
-- ids before it belong to the others. A row written before this migration is one line. A replica of the version before
-- shows a row as one line with breaks, and its pages may leave out lines of a row: update every replica at once.
alter table log_lines
  add column line_count smallint not null default 1,
  add column after_ms integer[];         -- of each line, milliseconds behind `at`; null: one line
alter table log_lines alter column id set increment by 64;
select setval('log_lines_id_seq', (select last_value from log_lines_id_seq) + 64);
