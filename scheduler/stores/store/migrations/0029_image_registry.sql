-- Built images in the managed registry. Code of the version before leaves them there, and runs them where they were
-- built.
alter table images add column registry_digest text not null default '';   -- empty: it is in no registry
alter table images add column registry_layers jsonb not null default '{}'; -- bytes of each blob there, by its digest
alter table images add column push_error text not null default '';        -- why it is in no registry
alter table images add column push_tried_at timestamptz;
-- An image keeps the object with its files, from which it is built again.
create index images_by_context on images (lower(definition->>'contextObjectId'))
  where definition->>'contextObjectId' <> '';
