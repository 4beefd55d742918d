/**
 * `npm run fuzz -- --dockerfile [--inputs N] [--seed N]`: Dockerfiles made up at random go through our reader, and what
 * the engine would get goes to Docker's own parsers, of 20.10 and of 29. Each instruction must mean there what it means
 * here, or be refused there. The parsers are built with Go in a temporary folder.
 */
import { spawn, spawnSync } from 'node:child_process';
import type { ChildProcessWithoutNullStreams } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { isDeepStrictEqual, parseArgs } from 'node:util';
import { assemble, forEngine, readOrder } from '#agent/builds/assemble.ts';
import type { Instruction } from '#shared/domain/dockerfile/instruction.ts';
import { readDockerfile } from '#shared/domain/dockerfile/read.ts';
import { textOf } from '#shared/domain/dockerfile/write.ts';
import { AppError } from '#shared/errors.ts';
import { dockerfileOf, randomFrom } from './hostile.ts';
import { meaningOf } from './meaning.ts';
import type { Meaning, Variables } from './meaning.ts';

/** The parsers in the sources of Docker 20.10.24 (`vendor.conf`) and 29.7.2 (`go.mod`). */
const PARSERS = { docker20: 'v0.8.4-0.20221020190723-eeb7b65ab7d6', docker29: 'v0.32.2' } as const;
type Version = keyof typeof PARSERS;

const VARIABLES: Variables = { U: 'http://127.0.0.1/x', S: 'two words', Q: `q"'\\ --from=68c $U`, E: '' };
const ID = `sha256:${'1'.repeat(64)}`;
const LABELS = { 'io.longshore.build': 'm "x"' };
const BATCH = 2000;

interface Answer {
  readonly error?: string;
  readonly instructions: readonly Meaning[] | null;
}

function parserOf(folder: string, version: Version): ChildProcessWithoutNullStreams {
  const here = join(folder, version);
  mkdirSync(here);
  copyFileSync(join(import.meta.dirname, 'main.go'), join(here, 'main.go'));
  copyFileSync(join(import.meta.dirname, `${version}.go`), join(here, 'adapter.go'));
  writeFileSync(
    join(here, 'go.mod'),
    `module parsers\n\ngo 1.22\n\nrequire github.com/moby/buildkit ${PARSERS[version]}\n`,
  );
  for (const args of [
    ['mod', 'tidy'],
    ['build', '-o', 'reader', '.'],
  ]) {
    const { status, stderr } = spawnSync('go', args, {
      cwd: here,
      encoding: 'utf8',
      env: { ...process.env, GOFLAGS: '-mod=mod' },
    });
    if (status !== 0) throw new Error(`go ${args.join(' ')} (${version}): ${stderr.slice(-2000)}`);
  }
  const list = Object.entries(VARIABLES).map(([name, value]) => `${name}=${value}`);
  return spawn(join(here, 'reader'), [JSON.stringify(list)]);
}

/** Questions to a parser, whose answers come in their order. */
class Parser {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #lines: AsyncIterator<string>;

  constructor(child: ChildProcessWithoutNullStreams) {
    this.#child = child;
    child.stderr.pipe(process.stderr);
    this.#lines = createInterface({ input: child.stdout, crlfDelay: Infinity })[Symbol.asyncIterator]();
  }

  async ask(texts: readonly string[]): Promise<readonly Answer[]> {
    this.#child.stdin.write(texts.map((text) => `${JSON.stringify(text)}\n`).join(''));
    const answers: Answer[] = [];
    while (answers.length < texts.length) {
      const next = await this.#lines.next();
      if (next.done === true) throw new Error('a parser ended');
      answers.push(JSON.parse(next.value) as Answer);
    }
    return answers;
  }

  end(): void {
    this.#child.stdin.end();
  }
}

interface Expected {
  readonly text: string;
  readonly meanings: readonly Meaning[];
  /** Why the order of these steps is read differently by the agent; undefined: it is not. */
  readonly wrong?: string;
}

/** The text that the engine gets for a file, with its meaning; undefined: the file is refused. */
function expectedOf(file: string): Expected | undefined {
  const read = readDockerfile(file);
  if (read.kind === 'problem') return undefined;
  const texts = read.instructions.map(({ instruction }) => textOf(instruction));
  const order = readOrder(texts.map((text) => ({ text, title: '' })));
  if (order.kind === 'problem') return { text: '', meanings: [], wrong: `the agent refuses it: ${order.problem}` };
  const same = isDeepStrictEqual(
    order.steps.map(({ instruction }) => instruction),
    read.instructions.map(({ instruction }) => instruction),
  );
  if (!same) return { text: '', meanings: [], wrong: 'the agent reads another value' };
  const names = order.steps.flatMap(({ source }) => (source?.kind === 'image' ? [source.image] : []));
  const known = {
    bases: new Map(names.map((name) => [name, { id: ID, architecture: 'amd64' }])),
    stages: order.steps.filter(({ instruction }) => instruction.name === 'FROM').map(() => ID),
  };
  let instructions: readonly Instruction[];
  try {
    instructions = forEngine(order.steps, known, ['/bin/sh', '-c']);
  } catch (error) {
    // Another platform, say: the agent builds nothing.
    if (error instanceof AppError) return undefined;
    throw error;
  }
  const { dockerfile } = assemble(instructions, [], { labels: LABELS, args: ['PIP_CERT'] });
  const meanings = instructions.flatMap((instruction) => [
    meaningOf(instruction, VARIABLES),
    ...(instruction.name === 'FROM'
      ? [
          { name: 'LABEL', pairs: Object.entries(LABELS) },
          { name: 'ARG', pairs: [['PIP_CERT']] },
        ]
      : []),
  ]);
  return { text: dockerfile, meanings };
}

/** Why the engine could do more with a file than we know; undefined: it could not. */
function wrongWith({ meanings, wrong }: Expected, { error, instructions }: Answer): string | undefined {
  if (wrong !== undefined) return wrong;
  if (error !== undefined || instructions === null) return undefined;
  if (instructions.length !== meanings.length)
    return `${instructions.length} instructions, and ${meanings.length} here`;
  for (const [at, there] of instructions.entries()) {
    const here = meanings[at];
    if (!isDeepStrictEqual(there, JSON.parse(JSON.stringify(here))))
      return `${JSON.stringify(there)}, and ${JSON.stringify(here)} here`;
    if (there.image !== undefined && ![ID, 'scratch'].includes(there.image)) return `the image ${there.image}`;
    if (there.name === 'ADD') return `an ADD of ${there.words?.join(' ')}`;
    const own = there.name === 'LABEL' && there.pairs?.some(([key = '']) => /^io\.longshore\./i.test(key)) === true;
    if (own && !isDeepStrictEqual(there.pairs, Object.entries(LABELS)))
      return `the labels ${JSON.stringify(there.pairs)}`;
  }
  return undefined;
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: { inputs: { type: 'string', default: '200000' }, seed: { type: 'string', default: '1' } },
  });
  const [inputs, seed] = [Number(values.inputs), Number(values.seed)];
  if (spawnSync('go', ['version']).error !== undefined) {
    process.stderr.write('the fuzz of Dockerfiles needs Go, which builds the parsers of Docker: install golang\n');
    return 3;
  }
  const folder = mkdtempSync(join(tmpdir(), 'ls-dockerfile-'));
  const parsers = new Map<Version, Parser>();
  try {
    for (const version of ['docker20', 'docker29'] as const)
      parsers.set(version, new Parser(parserOf(folder, version)));
    return await fuzz(parsers, inputs, seed);
  } finally {
    for (const parser of parsers.values()) parser.end();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function fuzz(parsers: ReadonlyMap<Version, Parser>, inputs: number, seed: number): Promise<number> {
  const random = randomFrom(seed);
  const failureOf = async (file: string): Promise<string | undefined> => {
    const expected = expectedOf(file);
    if (expected === undefined) return undefined;
    for (const [version, parser] of parsers) {
      const [answer] = await parser.ask([expected.text]);
      const wrong = answer === undefined ? undefined : wrongWith(expected, answer);
      if (wrong !== undefined) return `${version}: ${wrong}`;
    }
    return undefined;
  };
  let accepted = 0;
  const refusals = new Map<string, number>();
  for (let done = 0; done < inputs; done += BATCH) {
    const files = Array.from({ length: Math.min(BATCH, inputs - done) }, () => dockerfileOf(random));
    const taken = files.flatMap((file) => {
      const expected = expectedOf(file);
      return expected === undefined ? [] : [{ file, expected }];
    });
    accepted += taken.length;
    for (const [version, parser] of parsers) {
      const answers = await parser.ask(taken.map(({ expected }) => expected.text));
      for (const [at, { file, expected }] of taken.entries()) {
        const answer = answers[at];
        if (answer === undefined) throw new Error('an answer is missing');
        if (answer.error !== undefined) {
          const key = `${version}: ${answer.error.replaceAll(/"[^]*"|\d+/g, '…').slice(0, 120)}`;
          refusals.set(key, (refusals.get(key) ?? 0) + 1);
        }
        if (wrongWith(expected, answer) === undefined) continue;
        const shortest = await shorter(file, failureOf);
        process.stdout.write(
          `seed ${seed}, shortest input: ${JSON.stringify(shortest)}\n${(await failureOf(shortest)) ?? ''}\n` +
            `the engine gets: ${JSON.stringify(expectedOf(shortest)?.text)}\n`,
        );
        return 1;
      }
    }
  }
  process.stdout.write(`seed ${seed}: ${inputs} Dockerfiles, ${accepted} read here, none means more to Docker\n`);
  for (const [text, count] of [...refusals].toSorted(([, one], [, other]) => other - one).slice(0, 12))
    process.stdout.write(`refused there ${count} times by ${text}\n`);
  return 0;
}

/** A file from which no part can go without that it passes. */
async function shorter(file: string, failureOf: (file: string) => Promise<string | undefined>): Promise<string> {
  let best = file;
  for (let size = Math.ceil(best.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2))
    for (let at = 0; at < best.length;) {
      const tried = best.slice(0, at) + best.slice(at + size);
      if ((await failureOf(tried)) === undefined) at += size;
      else best = tried;
    }
  return best;
}

process.exitCode = await main();
