/**
 * The agent as the program that a release's units run. Without an argument it is the daemon; `drain`, `undrain` and
 * `end-containers` are requests to the running daemon. A failure ends it with a sentence and an exit code.
 */
import { join, resolve } from 'node:path';
import { StartupError } from '#shared/errors.ts';
import { loadAgentConfig } from './config.ts';
import type { ControlRequest } from './control.ts';
import { askAgent } from './control.ts';
import { runAgent } from './process.ts';

const say = (text: string): void => void process.stderr.write(`longshore-agent: ${text}\n`);

async function ask(request: ControlRequest): Promise<void> {
  const { LONGSHORE_DATA_DIR: dataDir } = loadAgentConfig(process.env);
  if (!(await askAgent(join(resolve(dataDir), 'agent'), request, say))) say('no agent runs here');
}

try {
  switch (process.argv[2]) {
    case undefined:
      await runAgent(process.env);
      break;
    case 'drain':
      await ask({ kind: 'drain', seconds: loadAgentConfig(process.env).LONGSHORE_SHUTDOWN_DRAIN_SECONDS });
      break;
    case 'undrain':
    case 'end-containers':
      await ask({ kind: process.argv[2] });
      break;
    default:
      throw new StartupError('bad_config', `there is no command ${process.argv[2]}`, { exitCode: 78 });
  }
} catch (error) {
  if (!(error instanceof StartupError)) throw error;
  say(error.message);
  process.exitCode = error.exitCode;
}
