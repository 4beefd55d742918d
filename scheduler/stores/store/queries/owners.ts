/**
 * The table expression `owners (owner)` of a `with recursive`: the values of a column that such rows have, and a null
 * at their end. It steps from value to value through the index on the column, so that one with a million rows costs no
 * more than one with a few.
 * @param where - as the index has it
 */
export const ownersOf = (
  table: string,
  where: string,
  column = 'workspace_id',
  after = '',
): string => `owners (owner) as (
       select min(${column}) from ${table} where ${where}${after === '' ? '' : ` and ${column} > ${after}`}
       union all
       select (select min(${column}) from ${table} where ${where} and ${column} > owners.owner)
       from owners where owners.owner is not null
     )`;
