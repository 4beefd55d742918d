/**
 * Runs schemathesis against a scheduler, all its phases but the stateful one, and judges the
 * answers. The tool's own verdict counts every status from 500 on. This verdict treats each
 * recorded answer as the other fuzzing does: a failure is expected or a fault, and each answer must
 * match its description. The tool runs in a directory of its own, because it leaves files there.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { execa } from 'execa';
import { documentedRoutes, faultOf, routeAt, whyExpected } from './documented.ts';
import type { Route } from './documented.ts';
import { tempDirectory } from './services.ts';

/** Calls of endpoints wait for a machine, streams last, and a token that is deleted or switched off ends the run. */
const LEFT_OUT = '^/endpoint/|/gateway/tokens/|/events/[^/]+/stream$|/subscribe$';
/** Faults of one kind are shown once. */
const MOST_SHOWN = 50;
const REQUEST_SECONDS = 20;

export interface Ran {
  /** Counts of answers, in one line. */
  readonly summary: string;
  readonly faults: readonly string[];
  /** Routes that should have been tried and were not. */
  readonly untried: readonly string[];
}

interface Entry {
  readonly request: { readonly method: string; readonly url: string; readonly postData?: { readonly text?: string } };
  readonly response: { readonly status: number; readonly content: { readonly text?: string } };
}

export interface SchemathesisOptions {
  readonly address: string;
  readonly token: string;
  readonly seed: number;
  readonly examples: number;
  /** Value of `{ws}` in every path: with another one nothing behind it would be reached. */
  readonly workspaceId: string;
  /** Values for other parts of a path, beside the tool's own. */
  readonly known: Readonly<Record<string, readonly string[]>>;
}

/** @param program - path of the tool */
export async function runSchemathesis(program: string, options: SchemathesisOptions): Promise<Ran> {
  const directory = tempDirectory('schemathesis');
  try {
    writeFileSync(join(directory.path, 'schemathesis.toml'), settings(options));
    const record = join(directory.path, 'answers.har');
    const { exitCode, all } = await execa(
      program,
      [
        'run',
        join(resolve(import.meta.dirname, '..', '..'), 'docs', 'openapi.json'),
        ...['--url', `http://${options.address}`, '--header', `Authorization:Bearer ${options.token}`],
        ...['--phases', 'examples,coverage,fuzzing', '--checks', 'not_a_server_error', '--continue-on-failure'],
        ...['--exclude-path-regex', LEFT_OUT, '--max-examples', String(options.examples)],
        ...['--seed', String(options.seed), '--no-shrink', '--generation-database', 'none'],
        ...['--request-timeout', String(REQUEST_SECONDS), '--workers', '2', '--no-color'],
        ...['--report', 'har', '--report-har-path', record, '--output-sanitize', 'false'],
      ],
      { all: true, reject: false, cwd: directory.path, timeout: 3_000_000 },
    );
    // Exit code 1 counts failures that we accept; with any other code but 0 the tool did not run.
    if (exitCode !== 0 && exitCode !== 1) {
      return { summary: all.slice(-6000), faults: [`schemathesis ended with ${exitCode}`], untried: [] };
    }
    const { log } = JSON.parse(readFileSync(record, 'utf8')) as { log: { entries: readonly Entry[] } };
    return judge(log.entries);
  } finally {
    directory.remove();
  }
}

/** Text of the settings file, which the tool finds in its working directory. */
function settings({ workspaceId, known }: SchemathesisOptions): string {
  const names = Object.keys(known);
  const bound = names.map((name) => `"path.${name}" = { dictionary = "${name}", probability = 0.7 }`);
  const values = names.map((name) => `[dictionaries.${name}]\nvalues = ${JSON.stringify(known[name])}`);
  return ['[parameters]', `"path.ws" = ${JSON.stringify(workspaceId)}`, ...bound, ...values, ''].join('\n');
}

function judge(entries: readonly Entry[]): Ran {
  const routes = documentedRoutes();
  const counts = new Map<string, number>();
  const faults = new Map<string, string>();
  const tried = new Set<Route>();
  for (const { request, response } of entries) {
    const { status } = response;
    const text = response.content.text ?? '';
    const answered = { method: request.method, url: request.url, status, text };
    const route = routeAt(routes, request.method, request.url);
    if (route !== undefined) tried.add(route);
    const why = whyExpected(routes, answered);
    const what = status === 0 ? 'no answer' : why === undefined ? String(status) : `${status} (${why})`;
    counts.set(what, (counts.get(what) ?? 0) + 1);
    const fault = status === 0 ? 'no answer' : faultOf(routes, answered);
    if (fault === undefined) continue;
    const sent = `${request.method} ${request.url.slice(0, 300)} ${(request.postData?.text ?? '').slice(0, 600)}`;
    faults.set(`${route?.method} ${route?.path} ${fault.slice(0, 60)}`, `${sent}\n  ${fault}\n  ${text.slice(0, 300)}`);
  }
  const wanted = routes.filter(({ path }) => !new RegExp(LEFT_OUT).test(path));
  const said = [...counts].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([what, times]) => `${what}: ${times}`);
  return {
    summary: `schemathesis: ${entries.length} requests, ${tried.size} of ${routes.length} routes; ${said.join(', ')}`,
    faults: [...faults.values()].slice(0, MOST_SHOWN),
    untried: wanted.filter((route) => !tried.has(route)).map(({ method, path }) => `${method} ${path}`),
  };
}
