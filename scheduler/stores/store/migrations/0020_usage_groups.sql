-- The app, the deployment and the GPU model of a container's time, which usage is summed by. Rows of before have none.
alter table credit_ledger
  add column app_id text,
  add column deployment text,   -- its name; empty: a stub without one
  add column gpu_model text;    -- as the app asked for it; empty: no GPU
