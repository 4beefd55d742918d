/**
 * `node scripts/check-language.mjs`: enforces the language rules of CONTRIBUTING.md that a program can check. Comments
 * are at most 120 columns wide, and their first word is no stand-in for a noun. Sentences of documents have at most 25
 * words. Each offence is named with its line; the script prints the counts, and exits with 1 when there is an offence.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { repositoryRoot } from './setup/paths.mjs';

const WIDEST = 120;
const MOST_WORDS = 25;
const OPENER = /^(?:Of|What|Whatever|Whoever|One|Its|It|That|Those)\b/;
/** Comment marks by the ending of a file. */
const MARKS = {
  ts: /^(?:\/\/+|\/\*\*?|\*(?!\/))\s?(.*)/,
  tsx: /^(?:\/\/+|\/\*\*?|\*(?!\/))\s?(.*)/,
  mjs: /^(?:\/\/+|\/\*\*?|\*(?!\/))\s?(.*)/,
  c: /^(?:\/\/+|\/\*\*?|\*(?!\/))\s?(.*)/,
  proto: /^\/\/+\s?(.*)/,
  py: /^#(?!!)\s?(.*)/,
  sh: /^#(?!!)\s?(.*)/,
  lua: /^--\s?(.*)/,
  sql: /^--\s?(.*)/,
};
/** Texts of others, and generated files. */
const NOT_READ = /^LICENSE|\/generated\//;

const counts = { comments: 0, openers: 0, wide: 0, sentences: 0, long: 0 };
const offences = [];
for (const file of trackedFiles()) {
  const mark = MARKS[file.split('.').at(-1)];
  if (mark !== undefined) checkComments(file, readFileSync(join(repositoryRoot, file), 'utf8'), mark);
  else if (file.endsWith('.md')) checkSentences(file, readFileSync(join(repositoryRoot, file), 'utf8'));
}
for (const offence of offences) process.stderr.write(`${offence}\n`);
process.stdout.write(
  `${counts.comments} comments: ${counts.openers} begin with a stand-in, ${counts.wide} lines above ${WIDEST} columns; ` +
    `${counts.sentences} sentences in documents: ${counts.long} above ${MOST_WORDS} words\n`,
);
process.exitCode = offences.length > 0 ? 1 : 0;

/** Files of the repository and new ones; a release or an archive without git has nothing to check. */
function trackedFiles() {
  const options = { cwd: repositoryRoot, encoding: 'utf8', maxBuffer: 2 ** 26 };
  const list = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], options);
  return list
    .split('\n')
    .filter((file) => file !== '' && !NOT_READ.test(file) && existsSync(join(repositoryRoot, file)));
}

function checkComments(file, text, mark) {
  // A comment's first text may stand below a line that only opens it; a paragraph begins below an empty line.
  let goesOn = false;
  for (const [at, line] of text.split('\n').entries()) {
    const trimmed = line.trim();
    const found = mark.exec(trimmed);
    if (found === null) {
      goesOn = false;
      continue;
    }
    if (line.length > WIDEST && / /.test(found[1].trim())) {
      counts.wide += 1;
      offences.push(`${file}:${at + 1}: a comment of ${line.length} columns`);
    }
    const words = found[1].replace(/^@(?:param\s+\S+\s+(?:-\s+)?|\w+\s+)/, '');
    const begins = !goesOn || trimmed.startsWith('/*') || found[1].startsWith('@');
    goesOn = words.trim() !== '';
    if (!begins || !goesOn) continue;
    counts.comments += 1;
    if (!OPENER.test(words)) continue;
    counts.openers += 1;
    offences.push(`${file}:${at + 1}: a comment begins with "${words.split(/\s/)[0]}": name its subject first`);
  }
}

/** Prose alone: code, headings and links' addresses have no sentences. A cell of a table is read as prose. */
function checkSentences(file, text) {
  const blank = (block) => block.replace(/[^\n]/g, '');
  const prose = text
    .replace(/^---\n[\s\S]*?\n---\n/, blank)
    .replace(/^([ \t]*)(```|~~~)[\s\S]*?^[ \t]*\2/gm, blank)
    .replace(/<!--[\s\S]*?-->/g, blank)
    .replace(/^#.*$/gm, '')
    .replace(/\]\([^)]*\)/g, ']');
  let line = 1;
  for (const part of prose.split(/(\n\n+|\n\s*(?:[-*]|\d+\.) |(?<=[.!?:])\s+|\|)/)) {
    const words = part
      .trim()
      .split(/\s+/)
      .filter((word) => /\w/.test(word));
    if (words.length > 0) counts.sentences += 1;
    if (words.length > MOST_WORDS) {
      counts.long += 1;
      offences.push(`${file}:${line}: a sentence of ${words.length} words: ${words.slice(0, 8).join(' ')} …`);
    }
    line += part.split('\n').length - 1;
  }
}
