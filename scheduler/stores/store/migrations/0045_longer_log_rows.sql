-- A row of joined lines is stored as it is up to half a page. By default values above 2 KB are compressed, which costs
-- more processor time than the lines do.
alter table log_lines set (toast_tuple_target = 4080);
