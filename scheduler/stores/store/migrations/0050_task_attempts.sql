-- Earlier attempts of a task, as its job had them: JSON, oldest first. Null: there were none.
alter table tasks add column past text;
