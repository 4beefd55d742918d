/**
 * The table expression `owners (owner)` of a `with recursive`: the workspaces that have such rows, and a null at their
 * end. It steps from workspace to workspace through the index on `workspace_id`, so that one with a million rows costs
 * no more than one with a few.
 * @param where - as the index has it
 */
export const ownersOf = (table: string, where: string): string => `owners (owner) as (
       select min(workspace_id) from ${table} where ${where}
       union all
       select (select min(workspace_id) from ${table} where ${where} and workspace_id > owner)
       from owners where owner is not null
     )`;
