// The operator's command for one machine: no shell runs it here, its standard input is the line for the host, and a
// deadline ends it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';

const KEPT_CHARACTERS = 2_000;

export type Ended = { readonly kind: 'done' } | { readonly kind: 'failed'; readonly why: string };

/** @param line - its standard input; empty: none */
export async function runFor(words: readonly string[], line: string, timeoutMs: number): Promise<Ended> {
  const [program = '', ...args] = words;
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-KEPT_CHARACTERS)));
  // A command that does not read its input closes it.
  child.stdin.on('error', () => {});
  child.stdin.end(line === '' ? '' : `${line}\n`);
  const timer = setTimeout(() => void child.kill('SIGKILL'), timeoutMs);
  try {
    // A process that the command leaves behind may keep the pipes, so their end is not awaited.
    const [code, killedBy] = (await once(child, 'exit')) as [number | null, string | null];
    if (code === 0) return { kind: 'done' };
    const how =
      killedBy === 'SIGKILL'
        ? `did not end within ${Math.round(timeoutMs / 1000)} s`
        : `ended with ${code ?? killedBy}`;
    return { kind: 'failed', why: `\`${words.join(' ')}\` ${how}${tailOf(said)}` };
  } catch (error) {
    return {
      kind: 'failed',
      why: `\`${program}\` cannot be run: ${error instanceof Error ? error.message : String(error)}`,
    };
  } finally {
    clearTimeout(timer);
    child.stdout.destroy();
    child.stderr.destroy();
  }
}

function tailOf(said: string): string {
  const lines = said.trim().split('\n').slice(-3).join('; ').trim();
  return lines === '' ? '' : `: ${lines}`;
}
