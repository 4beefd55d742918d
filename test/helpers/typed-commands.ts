// Commands as people type them, against a real scheduler and a real agent.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { MAIN, test as base } from './platform.ts';
import { endOf } from './programs.ts';
import type { Ended } from './programs.ts';

/** `longshore` as a person types it, each command a process of its own. */
export interface Line {
  /** Runs `longshore …` with the installation's admin token, or another. */
  readonly run: (args: readonly string[], token?: string) => Promise<Ended>;
  /** Runs the command with `--json`; the command must succeed. */
  readonly json: <T = Readonly<Record<string, unknown>>>(args: readonly string[], token?: string) => Promise<T>;
  /** An app file in a directory of its own. */
  readonly app: (name: string, text: string) => string;
  readonly env: (token?: string) => NodeJS.ProcessEnv;
}

export const test = base.extend('line', async ({ platform }): Promise<Line> => {
  const env = (token = platform.token): NodeJS.ProcessEnv => ({
    ...platform.env(),
    LONGSHORE_URL: platform.url,
    LONGSHORE_TOKEN: token,
  });
  const run: Line['run'] = (args, token) => endOf(process.execPath, [MAIN, ...args], { env: env(token) });
  return {
    env,
    run,
    json: async <T>(args: readonly string[], token?: string) => {
      const ended = await run([...args, '--json'], token);
      if (ended.code !== 0) throw new Error(`longshore ${args.join(' ')}: ${ended.stderr}`);
      return JSON.parse(ended.stdout) as T;
    },
    app: (name, text) => {
      const directory = join(platform.directory, name);
      mkdirSync(directory, { recursive: true });
      writeFileSync(join(directory, 'app.py'), text);
      return join(directory, 'app.py');
    },
  };
});
