// Exit codes of every command that calls a scheduler: `--json` never changes them, and a missing name, no token, a
// revoked token and nobody who answers have a code each. The tree of commands is walked, so that none is forgotten.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { wordsOf } from '#cli/command-tree.ts';
import { EXIT } from '#cli/exit-codes.ts';
import { buildProgram } from '#cli/program.ts';
import { runCommand } from '../helpers/command-line.ts';
import { playedServer } from '../helpers/played-server.ts';
import { tempDirectory } from '../helpers/programs.ts';

/** Commands that run in the foreground, work on files of this machine, or need a terminal. */
const APART = new Set([
  ...['up', 'scheduler', 'mounts', 'agent', 'agent check', 'agent check-gpu', 'registry serve', 'init', 'completion'],
  ...['complete-names', 'context list', 'context show', 'context use', 'context delete', 'context token', 'logout'],
  // `version` answers without a scheduler, `machine upgrade` asks without a token, and `login` reads one from stdin.
  ...['version', 'machine upgrade', 'login', 'container shell', 'simulate', 'trace generate'],
]);
const ID = '0f6b2a1e-6f0a-4b8e-9a51-6a6d1c0a9f11';

const directory = tempDirectory('cli-exit-codes');
/** An installation without anything: its lists are empty, and no id is known. Below `/refused` no token is accepted. */
const server = playedServer((request, response) => {
  const { method, url: path = '' } = request;
  const isList = method === 'GET' && /^\/api\/v1\/gateway\/\w+(\?|$)/.test(path);
  const status = path.startsWith('/refused') ? 401 : isList ? 200 : 404;
  const message = status === 401 ? 'invalid or missing token' : 'Not Found';
  request.resume().on('end', () => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(status === 200 ? '{"ok":true}' : JSON.stringify({ code: 5, message, details: [] }));
  });
});
beforeAll(() => {
  writeFileSync(
    join(directory.path, 'app.py'),
    'from longshore import Image, endpoint\n\n@endpoint(name="sum", image=Image(python_packages=["six"]))\ndef add():\n    return 1\n',
  );
});
afterAll(() => directory.remove());

const app = join(directory.path, 'app.py');
/** Words of arguments by their names; others get an id. */
const WORDS: Readonly<Record<string, readonly string[]>> = {
  name: ['nobody'],
  containers: ['2'],
  tasks: ['5'],
  amount: ['5'],
  mode: ['prepaid'],
  kind: ['deployments'],
  'file[:handler]': [app],
  'file:handler': [app],
  ports: ['8000'],
  url: ['https://example.com/hook'],
  value: ['127.0.0.1'],
};
/** Whole command lines of commands whose arguments depend on each other. */
const LINES: Readonly<Record<string, string>> = {
  'container cp': `container cp ${ID}:/x ${directory.path}/x`,
  'container exec': `container exec ${ID} -- true`,
  'volume cp': `volume cp nobody:/x ${directory.path}/x`,
  'volume mv': 'volume mv nobody:/x nobody:/y',
  'volume rm': 'volume rm nobody:/x',
  'registry set': `registry set ghcr.io --username a --repositories a/* --file ${app}`,
  'secret set': `secret set NOBODY --file ${app}`,
  'map set': 'map set nobody a 1',
  'map clear': 'map clear nobody --yes',
  'queue put': 'queue put nobody 1',
  'queue clear': 'queue clear nobody --yes',
  'task rerun': `task rerun ${ID}`,
  'settings set': 'settings set webhook_allow 127.0.0.1',
  'settings reset': 'settings reset webhook_allow',
  'stack create': 'stack create nobody --app nobody',
  'stack update': 'stack update nobody --add nobody',
  'pool set': 'pool set nobody --priority 3',
  'enrol-token create': 'enrol-token create nobody --pool nobody',
  'model add': 'model add a/b --type chat --deployment nobody --kind pod --port 80 --context-length 9',
  'token update': `token update ${ID} --name a`,
  'webhook update': `webhook update ${ID} --description a`,
  'workspace delete': 'workspace delete nobody --yes',
  'workspace limits': `workspace limits ${ID}`,
  'deployment delete': 'deployment delete nobody --yes',
  logs: 'logs nobody',
  events: 'events',
  'task watch': `task watch ${ID}`,
  top: 'top --once',
};

const leaves = (command: Command): readonly Command[] =>
  command.commands.length === 0 ? [command] : command.commands.flatMap((inner) => leaves(inner));
const lines = leaves(buildProgram(() => {}))
  .map((command): readonly [string, readonly string[]] => {
    const words = wordsOf(command);
    const values = command.registeredArguments
      .filter(({ required }) => required)
      .flatMap((one) => WORDS[one.name()] ?? [ID]);
    return [words, LINES[words]?.split(' ') ?? [...words.split(' '), ...values]];
  })
  .filter(([words]) => !APART.has(words) && words !== 'help');

const code = async (args: readonly string[], env: Readonly<Record<string, string>>): Promise<number> =>
  (await runCommand(args, { LONGSHORE_CONTEXT_FILE: join(directory.path, 'none.json'), ...env })).code;

describe.each(lines)('%s', (_, args) => {
  test.each([
    ['no token', () => ({ LONGSHORE_URL: server.url }), EXIT.refused],
    ['a revoked token', () => ({ LONGSHORE_URL: `${server.url}/refused`, LONGSHORE_TOKEN: 'eyJ.x' }), EXIT.refused],
    ['nobody who answers', () => ({ LONGSHORE_URL: 'http://127.0.0.1:9', LONGSHORE_TOKEN: 'eyJ.x' }), EXIT.unreachable],
    ['an answer without such a thing', () => ({ LONGSHORE_URL: server.url, LONGSHORE_TOKEN: 'eyJ.x' }), undefined],
  ] as const)('with %s has the same code with --json', async (_, env, expected) => {
    const codes = [await code(args, env()), await code(['--json', ...args], env())];
    expect(codes).toEqual(expected === undefined ? [codes[0], codes[0]] : [expected, expected]);
    expect(codes[0]).not.toBe(EXIT.usage);
  });
});
