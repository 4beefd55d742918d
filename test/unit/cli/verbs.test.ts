import type { Command } from 'commander';
import { describe, expect, test } from 'vitest';
import { parseReference } from '#cli/commands/deployment-reference.ts';
import { agentLine } from '#shared/join-line.ts';
import { tokenIdOf } from '#cli/commands/token.ts';
import { CliError } from '#cli/errors.ts';
import { ageOf, coresOf, counted, durationOf, gpuUseOf, gpusOf, memoryOf } from '#cli/format.ts';
import { buildProgram } from '#cli/program.ts';

const ID = '0f6b2a1e-6f0a-4b8e-9a51-6a6d1c0a9f11';

describe('a deployment', () => {
  test.for([
    [ID, { id: ID }],
    [ID.toUpperCase(), { id: ID.toUpperCase() }],
    ['hello', { name: 'hello', kind: undefined, version: undefined }],
    ['hello/v3', { name: 'hello', kind: undefined, version: 3 }],
    ['taskqueue/hello', { name: 'hello', kind: 'taskqueue', version: undefined }],
    ['endpoint/hello/v12', { name: 'hello', kind: 'endpoint', version: 12 }],
    ['v3', { name: 'v3', kind: undefined, version: undefined }],
    ['endpoint', { name: 'endpoint', kind: undefined, version: undefined }],
    ['team/app', { name: 'team/app', kind: undefined, version: undefined }],
  ] as const)('can be named %s', ([text, reference]) => {
    expect(parseReference(text)).toEqual(reference);
  });

  test.for(['', '/', 'a//b', '/v3', 'endpoint//v1'])('cannot be named %j', (text) => {
    expect(() => parseReference(text)).toThrow(CliError);
  });
});

describe('a table writes', () => {
  const now = Date.parse('2026-01-02T00:00:00Z');
  test.for([
    ['2026-01-01T23:59:48Z', '12s'],
    ['2026-01-01T23:59:00Z', '60s'],
    ['2026-01-01T23:55:00Z', '5m'],
    ['2026-01-01T21:00:00Z', '3h'],
    ['2025-12-30T00:00:00Z', '3d'],
    ['2026-01-02T00:00:09Z', '0s'],
    ['', '-'],
  ] as const)('%s as an age', ([time, text]) => {
    expect(ageOf(time, now)).toBe(text);
  });

  test('how long something took, or takes', () => {
    expect(durationOf('2026-01-01T23:59:59Z', '2026-01-01T23:59:59.25Z', now)).toBe('0.250s');
    expect(durationOf('2026-01-01T23:59:50Z', '2026-01-01T23:59:52.5Z', now)).toBe('2.5s');
    expect(durationOf('2026-01-01T23:59:00Z', '', now)).toBe('60s');
    expect(durationOf('', '', now)).toBe('-');
  });

  test('amounts as people say them', () => {
    expect([coresOf(500), coresOf(2000), coresOf(1333), coresOf(125)]).toEqual(['0.5', '2', '1.333', '0.125']);
    expect([memoryOf(512), memoryOf(1536), memoryOf(65_536)]).toEqual(['512 MiB', '1.5 GiB', '64 GiB']);
    expect([gpusOf(0, 'H100'), gpusOf(2, 'H100')]).toEqual(['-', '2 H100']);
    const use = {
      utilizationPct: 62.5,
      memoryUsedBytes: '4294967296',
      memoryTotalBytes: '171044765696',
      powerWatts: 0,
    };
    expect(gpuUseOf(use)).toBe('63 %, 4 of 159.3 GiB, 0 W');
    expect(gpuUseOf({ ...use, utilizationPct: null, memoryUsedBytes: null })).toBe('0 W');
    expect(gpuUseOf({})).toBe('-');
    expect([counted(1, 'task'), counted(2, 'task'), counted(0, 'task')]).toEqual(['1 task', '2 tasks', '0 tasks']);
  });
});

test('the line that runs an agent has the address to dial, whatever the scheme', () => {
  const line = 'LONGSHORE_SCHEDULER_ADDRESS=10.0.0.7:1995 LONGSHORE_JOIN_TOKEN=lsj1.a.b longshore agent';
  expect(agentLine('grpcs://10.0.0.7:1995', 'lsj1.a.b')).toBe(line);
  expect(agentLine('grpc://10.0.0.7:1995/', 'lsj1.a.b')).toBe(line);
});

test('the id of a token is read from it, and a text that is no token has none', () => {
  const claims = Buffer.from(JSON.stringify({ jti: ID })).toString('base64url');
  expect(tokenIdOf(`e30.${claims}.sig`)).toBe(ID);
  for (const text of ['', 'x', 'a.b.c', `e30.${Buffer.from('5').toString('base64url')}.x`])
    expect(tokenIdOf(text)).toBe('');
});

describe('the command tree', () => {
  const leaves = (command: Command, path: readonly string[] = []): (readonly [string, Command])[] =>
    command.commands.length === 0
      ? [[path.join(' '), command]]
      : command.commands.flatMap((child) => leaves(child, [...path, child.name()]));
  const all = new Map(leaves(buildProgram(() => {})));

  test('has every verb', () => {
    const verbs = {
      task: ['list', 'get', 'stop'],
      deployment: ['list', 'start', 'stop', 'scale', 'delete'],
      container: ['list', 'stop'],
      machine: ['create', 'list', 'delete'],
      worker: ['list', 'cordon', 'uncordon', 'drain'],
      pool: ['list'],
      workspace: ['create', 'list'],
      token: ['list', 'create', 'toggle', 'delete'],
    };
    const missing = Object.entries(verbs).flatMap(([noun, names]) =>
      names.filter((name) => !all.has(`${noun} ${name}`)).map((name) => `${noun} ${name}`),
    );
    expect(missing).toEqual([]);
  });

  test.for([...all].filter(([path]) => path.includes(' ') && !path.startsWith('context ')))(
    'shows examples of %s that begin with the command itself',
    ([path, command]) => {
      let help = '';
      command.configureOutput({ writeOut: (text) => (help += text) });
      command.outputHelp();
      expect(help).toContain(`  longshore ${path}`);
      expect(help).toContain('--json');
    },
  );

  test.for([
    [['task', 'stop'], "missing required argument 'id'"],
    [['task', 'list', '--limit', '0'], 'must be a whole number from 1 to 1000'],
    [['task', 'list', '--limit', '1001'], 'must be a whole number from 1 to 1000'],
    [['deployment', 'list', '--active', 'maybe'], 'must be yes or no'],
    [['deployment', 'scale', 'hello', 'many'], 'must be a whole number'],
    [['deployment', 'scale', 'hello', '-1'], 'must be a whole number'],
    [['worker', 'reboot'], "unknown command 'reboot'"],
    [['worker', 'reboot'], '(longshore worker --help shows what there is)'],
    [['pool', 'set', 'build', '--priority', '-1'], "option '--priority <n>' argument '-1' is invalid. must be a whole"],
    [['pool', 'set', 'build', '--priority', '-1'], '(longshore pool set --help shows what there is)'],
  ] as const)('refuses %j', async ([argv, text]) => {
    const said: string[] = [];
    const program = buildProgram(() => {});
    const quiet = (command: Command): void => {
      command.configureOutput({ writeErr: (line) => said.push(line), writeOut: () => {} });
      for (const child of command.commands) quiet(child);
    };
    quiet(program);
    await expect(program.parseAsync([...argv], { from: 'user' })).rejects.toThrow();
    expect(said.join('')).toContain(text);
  });
});
