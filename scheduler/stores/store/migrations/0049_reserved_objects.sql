-- An upload of more bytes than were announced takes its room before they come.
alter table objects add column reserved bigint not null default 0; -- bytes that an upload under way may store; 0: no more than size
