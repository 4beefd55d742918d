// Command lines whose command does not exist: `--help` must not hide that, and guessed words lead somewhere.
import { afterEach, describe, expect, test, vi } from 'vitest';
import { commandsOf, pathOf } from '#cli/command-tree.ts';
import { guessIn, guessOf } from '#cli/guessed-commands.ts';
import { buildProgram, runProgram } from '#cli/program.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

async function outcomeOf(...argv: readonly string[]) {
  const said: string[] = [];
  const keep = (text: unknown) => said.push(String(text)) > 0;
  vi.spyOn(process.stdout, 'write').mockImplementation(keep);
  vi.spyOn(process.stderr, 'write').mockImplementation(keep);
  const code = await runProgram(argv);
  return { code, said: said.join('') };
}

test.for([
  [['sandbox', '--help'], "unknown command 'sandbox'"],
  [['deplo', '-h'], "unknown command 'deplo'"],
  [['--json', 'whoami', '--help'], "unknown command 'whoami'"],
  [['webhook', 'creat', '--help'], "unknown command 'creat'"],
] as const)('%j is refused, and the help of something else is not shown', async ([argv, text]) => {
  const { code, said } = await outcomeOf(...argv);
  expect(said).toContain(text);
  expect(said).not.toContain('Usage:');
  expect(code).toBe(2);
});

test.for([
  [['--help'], 'Usage: longshore [options] [command]'],
  [['webhook', '--help'], 'Usage: longshore webhook'],
  [['--url', 'nonsense', 'webhook', 'create', '--help'], 'Usage: longshore webhook create'],
  [['deploy', 'nonsense', '--help'], 'Usage: longshore deploy'],
  [['agent', '--help'], 'Usage: longshore agent'],
  [['run', '--help', '--', 'sandbox'], 'Usage: longshore run'],
  [['help', 'webhook'], 'Usage: longshore webhook'],
] as const)('%j shows help', async ([argv, text]) => {
  const { code, said } = await outcomeOf(...argv);
  expect(said).toContain(text);
  expect(code).toBe(0);
});

describe('a guessed word', () => {
  test('leads to what there is', async () => {
    expect((await outcomeOf('sandbox')).said).toContain('what to use: programs make sandboxes');
    expect((await outcomeOf('cancel')).said).toContain('`longshore task stop ID`');
    expect((await outcomeOf('volume', 'ls', 'stuff', 'sub')).said).toContain(
      'what to use: `longshore volume ls stuff:sub`',
    );
    expect((await outcomeOf('ps')).said).toContain('`longshore container list`');
    expect((await outcomeOf('webhook', 'whoami')).said).not.toContain('what to use');
    expect(guessOf('constructor')).toBeUndefined();
  });

  test('is no command, and leads to commands that there are', () => {
    const program = buildProgram(() => {});
    const paths = commandsOf(program).map((one) => pathOf(one));
    const words = [
      'sandbox',
      'pod',
      'whoami',
      'drain',
      'scale',
      'stop',
      'start',
      'limits',
      'gpu',
      'cp',
      'doctor',
      'queues',
      'health',
    ];
    const named = words.flatMap((word) => [
      ...(guessOf(word) ?? '').matchAll(/`(longshore [a-z -]+?)(?: [A-Z:-].*?| app\.py)?`/g),
    ]);
    expect(named.length).toBeGreaterThan(words.length);
    expect(named.map(([, path]) => path).filter((path) => !paths.includes(path ?? ''))).toEqual([]);
    expect(words.filter((word) => program.commands.some((one) => one.name() === word))).toEqual([]);
  });
});

test.for([
  [['task', 'show', '--help'], 'Usage: longshore task get'],
  [['--json', 'token', 'ls', '--help'], 'Usage: longshore token list'],
  [['deployment', 'rm', '--help'], 'Usage: longshore deployment delete'],
  [['machine', 'gpu', 'ls', '--help'], 'Usage: longshore machine gpu list'],
  [['volume', 'info', '--help'], 'Usage: longshore volume show'],
  [['model', 'delete', '--help'], 'Usage: longshore model remove'],
] as const)('%j runs the command that it is another word for', async ([argv, text]) => {
  const { code, said } = await outcomeOf(...argv);
  expect(said).toContain(text);
  expect(code).toBe(0);
});

test.for([
  [['explain'], 'what to use: the name of a deployment, as in `longshore explain hello`'],
  [['secret', 'set', 'KEY', 'hunter2'], 'the value comes from stdin or a file'],
] as const)('%j says what to give', async ([argv, text]) => {
  const { code, said } = await outcomeOf(...argv);
  expect(said).toContain(text);
  expect(said).not.toContain('hunter2');
  expect(code).toBe(2);
});

describe('a verb that a group calls otherwise', () => {
  test.for([
    [['volume', 'remove'], '`longshore volume delete`'],
    [['secret', 'add'], '`longshore secret set`'],
    [['container', 'kill'], '`longshore container stop`'],
    [['container', 'get'], '`longshore explain ID`'],
    [['container', 'logs'], '`longshore logs --container ID`'],
    [['map', 'keys'], '`longshore map show NAME`'],
    [['queue', 'add'], '`longshore queue put`'],
    [['queue', 'push'], '`longshore queue put NAME VALUE`'],
    [['queue', 'delete'], '`longshore queue clear NAME` deletes all items'],
    [['volume', 'cat'], '`longshore volume cp NAME:PATH FILE`'],
  ] as const)('%j leads to it, and to nothing that looks alike', async ([argv, text]) => {
    const { code, said } = await outcomeOf(...argv, '5f0c');
    expect(said).toContain(`what to use: ${text}`);
    expect(said).not.toContain('Did you mean');
    expect(code).toBe(2);
  });

  test('leads only to commands that there are', () => {
    const program = buildProgram(() => {});
    const paths = new Set(commandsOf(program).map((one) => pathOf(one)));
    const groups = program.commands.filter((one) => one.commands.length > 0);
    const words = ['show', 'logs', 'create', 'update', 'invoke', 'start'];
    const named = groups.flatMap((group) =>
      words.flatMap((word) => [...(guessIn(group, word) ?? '').matchAll(/`(longshore [a-z-]+(?: [a-z]+(?=[ `]))?)/g)]),
    );
    expect(named.length).toBeGreaterThan(groups.length);
    const missing = named.map(([, path = '']) => path.replace(/ app$/, ''));
    expect(missing.filter((path) => !paths.has(path))).toEqual([]);
  });

  test('a misspelt one is still named by likeness', async () => {
    expect((await outcomeOf('webhook', 'creat')).said).toContain('Did you mean create?');
  });
});

test('options that other programs have for a terminal lead to what needs none', async () => {
  const { code, said } = await outcomeOf('container', 'exec', '-it', '1f2e', 'sh');
  expect(said).toContain('what to use: input and terminal are passed on without an option');
  expect(code).toBe(2);
});

test('a command that is run without -- leads to it', async () => {
  expect((await outcomeOf('run', 'python3', '-c', 'print(1)')).said).toContain(
    'what to use: a command stands behind --',
  );
});

test('a handler beside its file is written behind it', async () => {
  expect((await outcomeOf('deploy', 'app.py', 'hi')).said).toContain('`longshore deploy app.py:handler`');
});

test('inputs behind the name of a call lead to --data', async () => {
  const { code, said } = await outcomeOf('invoke', 'hello', 'name=Ada');
  expect(said).toContain('--data');
  expect(code).toBe(2);
});
