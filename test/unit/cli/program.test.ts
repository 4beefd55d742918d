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
});
