-- Which workspaces have something to be sent, and what of each is due first.
create index deliveries_due_of_workspace on deliveries (workspace_id, due_at) where due_at is not null;
