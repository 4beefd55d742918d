alter table deployments add column image_digest text not null default '';  -- what its image meant when it was deployed
