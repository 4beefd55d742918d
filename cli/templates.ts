// The apps that `longshore init` copies: the folders of examples/, which lies beside the program. What each shows, and
// the commands that try it, are read from the README there.
import { readFileSync, readdirSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CliError } from './errors.ts';

const EXAMPLES = fileURLToPath(new URL('../examples', import.meta.url));

export interface Template {
  readonly name: string;
  /** A phrase of the README. */
  readonly shows: string;
}

/** A file of a template: its path in the app, and its bytes. */
export interface TemplateFile {
  readonly path: string;
  readonly content: Buffer;
}

/** An app made of a template. */
export interface StarterApp {
  readonly files: readonly TemplateFile[];
  /** Command lines that try the app, for the app's own folder. */
  readonly tries: readonly string[];
  /** The name of its only deployment; undefined: it has none or several. */
  readonly deployment: string | undefined;
}

/** All templates, in the README's order. @throws CliError when this program came without them */
export function listTemplates(): readonly Template[] {
  const rows = [...readme().matchAll(/^\| `([\w-]+)` \| ([^|]+) \|/gm)];
  return rows.map(([, name = '', shows = '']) => ({ name, shows: shows.trim() }));
}

/**
 * The files of a template, and how to try it.
 * @param name - a template of {@link listTemplates}
 * @param deployment - the name that its only deployment gets; undefined: its own
 */
export function starterApp(name: string, deployment?: string): StarterApp {
  const files = filesBelow(join(EXAMPLES, name));
  const sources = files.filter(({ path }) => path.endsWith('.py'));
  const names = sources.flatMap(({ content }) => deploymentsIn(content.toString('utf8')));
  const [own] = names.length === 1 ? names : [];
  const renamed = own === undefined || deployment === undefined ? own : deployment;
  const rename = (text: string): string =>
    own === undefined || renamed === undefined ? text : withName(text, own, renamed);
  return {
    files: files.map(({ path, content }) => ({
      path,
      content: path.endsWith('.py') ? Buffer.from(rename(inOwnFolder(content.toString('utf8'), name))) : content,
    })),
    tries: triesOf(name, names).map((line) => shown(inOwnFolder(renamedCall(line, own, renamed), name))),
    deployment: renamed,
  };
}

const DEFINITION = /((?:@(?:endpoint|asgi|realtime|task_queue|function|schedule)|\bPod)\(\s*name=)(['"])([^'"]+)\2/g;

const deploymentsIn = (source: string): readonly string[] =>
  [...source.matchAll(DEFINITION)].map((found) => found[3] ?? '');

const withName = (source: string, own: string, name: string): string =>
  source.replaceAll(DEFINITION, (whole, before: string, quote: string, found: string) =>
    found === own ? `${before}${quote}${name}${quote}` : whole,
  );

function renamedCall(line: string, own: string | undefined, name: string | undefined): string {
  if (own === undefined || name === undefined || own === name) return line;
  return line.replace(new RegExp(`( invoke | --deployment )${own}(?![\\w-])`), `$1${name}`);
}

/** The README's lines are for the repository's folder; those of an app are for its own. */
const inOwnFolder = (text: string, name: string): string =>
  text.replaceAll(`PYTHONPATH=python python3 examples/${name}/`, 'python3 ').replaceAll(`examples/${name}/`, '');

/** A remark stands two columns behind its command. */
const shown = (line: string): string => line.replace(/\s+# /, '  # ');

/** Lines of the README's paragraph about a template; of a paragraph about several, those that name it. */
function triesOf(name: string, deployments: readonly string[]): readonly string[] {
  const blocks = [...readme().matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map((found) => found[1] ?? '');
  const paragraphs = blocks.flatMap((block) => block.trim().split(/\n{2,}/));
  return paragraphs.flatMap((paragraph) => {
    const named = new Set([...paragraph.matchAll(/\bexamples\/([\w-]+)\//g)].map((found) => found[1]));
    if (!named.has(name)) return [];
    const lines = paragraph.split('\n');
    if (named.size === 1) return lines;
    return lines.filter(
      (line) => line.includes(`examples/${name}/`) || deployments.some((one) => line.split(' ').includes(one)),
    );
  });
}

function filesBelow(folder: string): readonly TemplateFile[] {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => !/(?:^|[\\/])(?:__pycache__|\.[^\\/]*)(?:[\\/]|$)/.test(relative(folder, path)))
    .toSorted()
    .map((path) => ({ path: relative(folder, path), content: readFileSync(path) }));
}

function readme(): string {
  try {
    return readFileSync(join(EXAMPLES, 'README.md'), 'utf8');
  } catch (error) {
    throw new CliError(`the templates are missing: they belong in ${EXAMPLES}. Install Longshore again`, {
      cause: error,
    });
  }
}
