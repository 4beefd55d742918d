-- Log lines of a whole workspace in the order of arrival. Without this
-- index, a page of them or a search reads every workspace's lines.
create index if not exists log_lines_by_workspace on log_lines (workspace_id, id);
