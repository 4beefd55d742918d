// `longshore simulate` with traces: its files, its table, its JSON, and what it says about faults.
import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { LONGEST_LINE } from '#scheduler/control/simulator/lines-of-file.ts';
import { runCommand } from '../helpers/command-line.ts';
import type { Ended } from '../helpers/command-line.ts';
import { tempDirectory } from '../helpers/programs.ts';
import { ROOT } from '../helpers/repository.ts';

const directory = tempDirectory('simulate');
afterAll(() => directory.remove());
const pathOf = (name: string): string => join(directory.path, name);

function write(name: string, lines: readonly (object | string)[]): string {
  const texts = lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line)));
  writeFileSync(pathOf(name), `${texts.join('\n')}\n`);
  return pathOf(name);
}
const simulate = (...args: readonly string[]): Promise<Ended> =>
  runCommand(['simulate', ...args], { LONGSHORE_CONTEXT_FILE: '/dev/null' });

const MACHINES = [{ kind: 'machine', machine: 'm', gpu: 'H100', gpus: 8 }];
const TRACE = [
  { kind: 'deploy', deployment: 'train', workspace: 'research', gpu: 'H100', one_task: true },
  { kind: 'deploy', deployment: 'answer', workspace: 'shop', gpu: 'H100', one_task: true },
  { t: 0, kind: 'task', deployment: 'train', seconds: 60, count: 100 },
  { t: 30, kind: 'task', deployment: 'answer', seconds: 60, count: 4 },
  { t: 600, kind: 'end' },
];
const machines = write('machines.jsonl', MACHINES);
const trace = write('trace.jsonl', TRACE);

interface Answer {
  readonly seed: number;
  readonly tasks: number;
  readonly policies: readonly {
    readonly policy: string;
    readonly workspaces: readonly { readonly workspace: string; readonly wait_seconds: { readonly most: number } }[];
  }[];
}

describe('a trace', () => {
  test('is run under all policies, as a table and as JSON', async () => {
    const shown = await simulate(trace, '--machines', machines);
    expect(shown).toMatchObject({ code: 0, stderr: '' });
    expect(shown.stdout).toContain('104 tasks in 600 s');
    expect(shown.stdout).toMatch(/^arrival +H100 +8 +100 % /m);
    expect(shown.stdout).toMatch(/^share +shop +4 +0 +30 s +30 s +30 s /m);
    const { code, stdout } = await simulate(trace, '--machines', machines, '--json', '--seed', '3');
    expect(code).toBe(0);
    const answer = JSON.parse(stdout) as Answer;
    expect(answer).toMatchObject({ seed: 3, tasks: 104, seconds: 600, lines: TRACE.length });
    expect(answer.policies.map(({ policy }) => policy)).toEqual([
      'arrival',
      'share',
      'share+reserve',
      'share+reserve+reclaim',
    ]);
    const waitOf = (n: number): unknown =>
      answer.policies[n]?.workspaces.find(({ workspace }) => workspace === 'shop')?.wait_seconds.most;
    expect(waitOf(1)).toBe(30);
    expect(waitOf(0)).toBeGreaterThan(60);
    expect((await simulate(trace, '--machines', machines, '--json', '--seed', '3')).stdout).toBe(stdout);
    const one = await simulate(write('whole.jsonl', [...MACHINES, ...TRACE]), '--policy', 'share', '--json');
    expect((JSON.parse(one.stdout) as Answer).policies).toEqual(answer.policies.slice(1, 2));
  });

  test('has machines that come and go by the other file', async () => {
    const other = write('other.jsonl', [
      ...MACHINES,
      { t: 100, kind: 'gone', machine: 'm' },
      { t: 300, kind: 'machine', machine: 'm', gpu: 'H100', gpus: 2 },
    ]);
    const { stdout } = await simulate(trace, '--machines', other, '--policy', 'share', '--json');
    expect((JSON.parse(stdout) as Answer).policies[0]).toMatchObject({ all: { begun_again: 8 } });
  });

  test.each<readonly [string, readonly string[], number, string]>([
    ['no such file', ['/nowhere'], 4, 'there is no file /nowhere'],
    ['no such file of machines', [trace, '--machines', '/nowhere'], 4, 'there is no file /nowhere'],
    ['a folder', [directory.path], 1, 'cannot read'],
    ['another file', [write('text', ['hello'])], 2, 'is neither a trace nor a recording'],
    ['an empty file', [write('empty', [])], 2, 'is neither a trace nor a recording'],
    [
      'an unknown policy',
      [trace, '--policy', 'fair'],
      2,
      'there is no policy fair; there are arrival, share, share+reserve, share+reserve+reclaim',
    ],
    ['a policy named twice', [trace, '--policy', 'share,share'], 2, 'each once'],
    ['a check', [trace, '--check'], 2, 'is a trace, and --check is for recordings'],
    [
      'a policy for a recording',
      [write('recording', [{ do: 'begin', version: 1 }]), '--policy', 'share'],
      2,
      'is a recording, and --policy is for traces',
    ],
    ['a line without a kind', [write('kind', [...TRACE.slice(0, 2), { t: 1 }])], 1, 'kind line 3: kind must be one of'],
    ['a fault in a field', [write('field', [...TRACE.slice(0, 2), { t: 'now', kind: 'end' }])], 1, 'line 3: t must be'],
    ['a line that is no JSON', [write('json', [...TRACE.slice(0, 2), '{"t":'])], 1, 'json line 3: is no JSON'],
    [
      'a time that goes back',
      [write('back', [...TRACE.slice(0, 4), { t: 1, kind: 'end' }])],
      1,
      'line 5: t must not be less',
    ],
    ['a line behind the end', [write('end', [...TRACE, { t: 700, kind: 'end' }])], 1, 'line 6: stands behind the end'],
    [
      'a task of nobody',
      [write('nobody', [{ t: 0, kind: 'task', deployment: 'd', seconds: 1 }])],
      1,
      'line 1: there is no deployment d yet',
    ],
    ['a task among machines', [trace, '--machines', trace], 1, 'line 1: kind must be machine, gone or limit'],
    [
      'a very long line',
      [write('long', [...TRACE.slice(0, 2), 'x'.repeat(LONGEST_LINE + 1)])],
      1,
      'long: line 3 has more than',
    ],
  ])('with a fault says where it is: %s', async (_, args, code, text) => {
    const ended = await simulate(...args);
    expect(ended).toMatchObject({ code, stdout: '' });
    expect(ended.stderr).toContain(text);
  });

  test('of a file in pieces is read whole', async () => {
    mkdirSync(pathOf('many'), { recursive: true });
    // Longer than a piece, with a letter of two bytes in every line.
    const tasks = Array.from({ length: 20_000 }, (_none, n) => ({
      t: n / 100,
      kind: 'task',
      deployment: `träin-${'x'.repeat(80)}`,
      seconds: 0.01,
    }));
    const file = write('many/trace.jsonl', [
      ...MACHINES,
      { ...TRACE[0], deployment: `träin-${'x'.repeat(80)}`, one_task: false },
      ...tasks,
    ]);
    const { stdout } = await simulate(file, '--policy', 'share', '--json');
    expect(JSON.parse(stdout)).toMatchObject({ tasks: 20_000, lines: 20_002, policies: [{ all: { unserved: 0 } }] });
  });
});

const generate = (...args: readonly string[]): Promise<Ended> =>
  runCommand(['trace', 'generate', ...args], { LONGSHORE_CONTEXT_FILE: '/dev/null' });

describe('a trace that is generated', () => {
  test('is the same for the same seed, and is run with its machines', async () => {
    const options = ['--workspaces', 'research,shop', '--for', '30m', '--sizes', '1,4', '--one-task'];
    const made = await generate(pathOf('made'), ...options);
    expect(made).toMatchObject({ code: 0, stderr: '' });
    const { stdout } = await generate(pathOf('again'), ...options, '--json');
    const paths = JSON.parse(stdout) as { trace: string; machines: string; tasks: number };
    const text = readFileSync(paths.trace, 'utf8');
    expect(readFileSync(pathOf('made/trace.jsonl'), 'utf8')).toBe(text);
    await generate(pathOf('third'), ...options, '--seed', '2');
    expect(readFileSync(pathOf('third/trace.jsonl'), 'utf8')).not.toBe(text);
    expect(made.stdout).toContain(
      `run them: longshore simulate ${pathOf('made/trace.jsonl')} --machines ${pathOf('made/machines.jsonl')}`,
    );
    const run = await simulate(paths.trace, '--machines', paths.machines, '--policy', 'share', '--json');
    expect(JSON.parse(run.stdout)).toMatchObject({ tasks: paths.tasks, seconds: 1800 });
  });

  test('does not replace files, and refuses what makes no sense', async () => {
    await generate(pathOf('kept'), '--for', '1m');
    expect(await generate(pathOf('kept'), '--for', '1m')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('machines.jsonl is there already') as string,
    });
    expect(await generate(join(trace, 'below'))).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('cannot write') as string,
    });
  });

  test.each<readonly [string, readonly string[], string]>([
    ['no workspaces', ['--workspaces', '0'], 'must be 1 to 1000 workspaces'],
    ['too many workspaces', ['--workspaces', '1001'], 'must be 1 to 1000 workspaces'],
    ['a name twice', ['--workspaces', 'a,a'], 'each once'],
    ['more GPUs than a machine has', ['--sizes', '1,16'], '--sizes has 16, and a machine has 8 GPUs'],
    ['a size of none', ['--sizes', '0'], 'must be a whole number from 1 to 64'],
    ['no time', ['--for', 'soon'], 'must be a span from 1s to 366d'],
    ['a curve above 1', ['--day-curve', '1.5'], 'must be a number from 0 to 1'],
    ['more tasks than are made', ['--median', '0.001', '--for', '366d'], 'at most 20000000 are made'],
  ])('is refused with %s', async (_, args, text) => {
    const ended = await generate(pathOf('refused'), ...args);
    expect(ended).toMatchObject({ code: 2, stdout: '' });
    expect(ended.stderr).toContain(text);
  });
});

describe('docs/sharing.md', () => {
  const page = readFileSync(join(ROOT, 'docs/sharing.md'), 'utf8');
  /** Lines of its section that begin so, as arguments. */
  const linesOf = (start: string): readonly (readonly string[])[] =>
    page.split('\n').flatMap((line) => (line.startsWith(start) ? [line.split(' ').slice(1)] : []));
  const run = (words: readonly string[]): Promise<Ended> =>
    runCommand(
      words.map((word) => word.replace(/^teams/, pathOf('teams'))),
      { LONGSHORE_CONTEXT_FILE: '/dev/null' },
    );

  test('has what its commands print and draw', async () => {
    const [made] = linesOf('longshore trace generate teams');
    const [first, second] = linesOf('longshore simulate teams');
    await run(made ?? []);
    const shown = await run(first ?? []);
    expect(shown.code).toBe(0);
    expect(page).toContain(`\`\`\`\n${shown.stdout}\`\`\``);
    await expect(readFileSync(pathOf('teams/gpus.svg'), 'utf8')).toMatchFileSnapshot('../../docs/images/sharing.svg');
    const [, limit = ''] = /^echo '(.*)' >> teams.machines.jsonl$/m.exec(page) ?? [];
    appendFileSync(pathOf('teams/machines.jsonl'), `${limit}\n`);
    expect(page).toContain(`\`\`\`\n${(await run(second ?? [])).stdout}\`\`\``);
    const result = JSON.parse(readFileSync(pathOf('teams/result.json'), 'utf8')) as Answer;
    expect(result.policies.map(({ policy }) => policy)).toEqual(['arrival', 'share']);
    expect(readFileSync(pathOf('teams/waits.svg'), 'utf8')).toContain('11 min');
  });

  test('is said about a folder that cannot be written', async () => {
    expect(await simulate(trace, '--machines', machines, '--out', join(trace, 'below'))).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('cannot write to') as string,
    });
  });
});
