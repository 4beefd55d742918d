import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { buildProgram } from '#cli/program.ts';

describe('the command line', () => {
  test('knows its commands, each with a description', () => {
    const commands = buildProgram(() => {}).commands;
    const names = commands.map((command) => command.name());
    for (const name of ['up', 'scheduler', 'agent', 'deploy', 'invoke', 'logs', 'status', 'context']) {
      expect(names).toContain(name);
    }
    for (const command of commands) expect(command.description()).not.toBe('');
  });

  test.for([
    [['up', '--port', 'x'], 'must be a whole number'],
    [['up', '--port', '70000'], 'must be a port'],
    [['invoke'], "missing required argument 'name'"],
    [['deplo'], "unknown command 'deplo'"],
  ] as const)('%j is refused', async ([argv, text]) => {
    const said: string[] = [];
    const program = buildProgram(() => {});
    for (const command of [program, ...program.commands]) {
      command.configureOutput({ writeErr: (line) => said.push(line), writeOut: () => {} });
    }
    await expect(program.parseAsync([...argv], { from: 'user' })).rejects.toThrow();
    expect(said.join('')).toContain(text);
  });

  test('is read without a library but commander: each command loads what it needs', () => {
    const repository = join(import.meta.dirname, '..', '..', '..');
    const hook = `import { registerHooks } from 'node:module';
      const packages = new Set();
      registerHooks({ load: (url, context, next) => {
        packages.add(/node_modules\\/((?:@[^/]+\\/)?[^/]+)/.exec(url)?.[1] ?? 'own');
        return next(url, context);
      } });
      process.on('exit', () => console.log([...packages].sort().join(' ')));`;
    const said = execFileSync(
      process.execPath,
      ['--import', `data:text/javascript,${encodeURIComponent(hook)}`, 'cli/main.ts', '--version'],
      { cwd: repository, encoding: 'utf8' },
    );
    expect(said.trimEnd().split('\n').at(-1)).toBe('commander own');
  });
});
