-- Index of the workspaces with messages to send, and of each workspace's due ones, the longest due first.
create index deliveries_due_of_workspace on deliveries (workspace_id, due_at) where due_at is not null;
