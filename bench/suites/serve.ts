// `serve`: a development server as a person has it, by the command itself. A save until the app is loaded, beside a new
// interpreter that imports the same app; and the first start with a tree of 2,000 files, beside `cp -r` of the tree.
import { spawn } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { execa } from 'execa';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import type { Product } from '../product.ts';
import { inTurn } from '../rounds.ts';
import { median } from '../stats.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const FILES = 2_000;
const FOLDERS = 40;
const EDITS = 20;
const QUICK_EDITS = 5;
const TOLD_WITHIN_MS = 60_000;
const MAIN = fileURLToPath(new URL('../../cli/main.ts', import.meta.url));
const PYTHON = fileURLToPath(new URL('../../python', import.meta.url));
const APP = `from longshore import endpoint
from word import WORD

@endpoint(name="bench-serve", cpu=0.5, memory=256)
def handler():
    return WORD
`;

export async function serve(context: SuiteContext): Promise<SuiteResult> {
  const { place, slack } = context;
  const product = await context.product();
  const edits = context.isQuick ? QUICK_EDITS : EDITS;
  const travelled: number[] = [];
  let tree = 0;
  const freshTree = (): string => {
    tree += 1;
    const home = join(place.directory, `serve-${tree}`);
    fill(home, tree);
    return home;
  };
  const rounds = await context.runRounds(
    'serve',
    inTurn(
      () => baseline(freshTree(), edits),
      () => ours(product, freshTree(), edits, travelled),
    ),
  );
  const most = Math.max(...travelled);
  return {
    measures: [
      measureOf('serve', 'reload p50', 'ms', rounds, slack),
      measureOf('serve', 'reload slowest', 'ms', rounds, slack),
      measureOf('serve', 'first', 'ms', rounds, slack),
    ],
    rounds,
    checks: [
      {
        suite: 'serve',
        name: 'files of an edit',
        isRight: most === 1,
        text: `an edit of one file moved ${most} of ${FILES + 2}`,
      },
    ],
  };
}

/** A tree whose files no tree before had, so that nothing is there already. */
function fill(home: string, number: number): void {
  for (let at = 0; at < FOLDERS; at += 1) mkdirSync(join(home, 'data', String(at)), { recursive: true });
  for (let at = 0; at < FILES; at += 1)
    writeFileSync(join(home, 'data', String(at % FOLDERS), `${at}.txt`), `${number} ${at} ${'x'.repeat(1000)}`);
  writeFileSync(join(home, 'app.py'), APP);
  writeFileSync(join(home, 'word.py'), 'WORD = 0\n');
}

const figuresOf = (reloads: readonly number[], first: number): Figures => ({
  'reload p50': median(reloads),
  'reload slowest': Math.max(...reloads),
  first,
});

async function baseline(home: string, edits: number): Promise<Figures> {
  const copy = `${home}-copy`;
  const first = await msOf(() => execa('cp', ['-r', home, copy]));
  const reloads: number[] = [];
  const env = { PYTHONPATH: PYTHON, PYTHONDONTWRITEBYTECODE: '1' };
  for (let edit = 1; edit <= edits; edit += 1) {
    reloads.push(
      await msOf(async () => {
        writeFileSync(join(home, 'word.py'), `WORD = ${edit}\n`);
        await execa('python3', ['-c', 'import app'], { cwd: home, env });
      }),
    );
  }
  for (const folder of [home, copy]) rmSync(folder, { recursive: true });
  return figuresOf(reloads, first);
}

interface Told {
  readonly kind: string;
  readonly state?: string;
  readonly files?: number;
}

async function ours({ client, env }: Product, home: string, edits: number, travelled: number[]): Promise<Figures> {
  const { url, token } = client.context;
  const startedMs = performance.now();
  const child = spawn(process.execPath, [MAIN, 'serve', join(home, 'app.py'), '--json'], {
    env: { ...env, LONGSHORE_URL: url, LONGSHORE_TOKEN: token },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const told: Told[] = [];
  let wake = (): void => undefined;
  let rest = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    told.push(...lines.map((line) => JSON.parse(line) as Told));
    wake();
  });
  const next = async (kind: string): Promise<Told> => {
    const timeout = AbortSignal.timeout(TOLD_WITHIN_MS);
    for (;;) {
      const found = told.splice(0).find((one) => one.kind === kind);
      if (found !== undefined) return found;
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      wake = resolve;
      timeout.onabort = () => reject(new Error(`\`longshore serve\` never told ${kind}`));
      await promise;
    }
  };
  try {
    await next('serving');
    const first = performance.now() - startedMs;
    const reloads: number[] = [];
    for (let edit = 1; edit <= edits; edit += 1) {
      reloads.push(
        await msOf(async () => {
          writeFileSync(join(home, 'word.py'), `WORD = ${edit}\n`);
          const { state, files = 0 } = await next('reloaded');
          if (state !== 'loaded') throw new Error(`edit ${edit} was not loaded: ${state}`);
          travelled.push(files);
        }),
      );
    }
    return figuresOf(reloads, first);
  } finally {
    child.kill('SIGINT');
    await new Promise((resolve) => child.once('close', resolve));
    rmSync(home, { recursive: true });
  }
}

async function msOf(work: () => unknown): Promise<number> {
  const startedMs = performance.now();
  await work();
  return performance.now() - startedMs;
}
