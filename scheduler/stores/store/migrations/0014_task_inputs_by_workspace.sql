-- Two indexes stand for it: of dead tasks, and of others.
drop index task_inputs_by_workspace;
