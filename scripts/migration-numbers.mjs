/**
 * Checks numbers of migrations: 0001, 0002 and so on, each used once. Two branches that each add a migration
 * get the same number, and neither notices until both have landed. A scheduler would not start then.
 */

const NAME = /^(\d{4})_[a-z0-9_]+\.sql$/;

/**
 * @param {readonly string[]} files - file names in the migrations' folder
 * @returns {string[]} a sentence per problem; empty when there is none
 */
export function numberingProblems(files) {
  const problems = [];
  /** @type {Map<number, string>} */
  const byNumber = new Map();
  for (const file of files.toSorted()) {
    const number = Number(NAME.exec(file)?.[1] ?? 0);
    const other = byNumber.get(number);
    if (number === 0) problems.push(`${file}: a migration is named 0001_words.sql`);
    else if (other !== undefined) problems.push(`${file}: ${other} has the same number`);
    else byNumber.set(number, file);
  }
  for (let number = 1; number <= Math.max(0, ...byNumber.keys()); number += 1) {
    if (!byNumber.has(number)) problems.push(`${String(number).padStart(4, '0')}: no migration has this number`);
  }
  return problems;
}
