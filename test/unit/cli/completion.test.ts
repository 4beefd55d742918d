// Completion as real shells do it. The names of an installation come from a function that stands for `longshore`.
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { fishScript } from '#cli/completion/fish.ts';
import { bashScript, zshScript } from '#cli/completion/shell.ts';
import { completedCommands } from '#cli/completion/words.ts';
import { buildProgram } from '#cli/program.ts';
import { tempDirectory } from '../../helpers/programs.ts';

const commands = completedCommands(buildProgram(() => {}));
const NAMES = 'longshore() { [ "$1" = complete-names ] && printf "%s\\n" "$2-one" "$2-two"; }';

const lines = (text: string): readonly string[] => text.split('\n').filter((line) => line !== '');

/** Words that bash offers for the last one. */
function bash(...words: readonly string[]): readonly string[] {
  const given = words.map((word) => `'${word}'`).join(' ');
  const script = `${bashScript(commands)}\n${NAMES}\nCOMP_WORDS=(longshore ${given}); COMP_CWORD=${words.length}; _longshore; printf '%s\\n' "\${COMPREPLY[@]}"`;
  return lines(execFileSync('bash', ['--norc', '-euc', script], { encoding: 'utf8' }));
}

/** Words by the functions that zsh runs. */
function zsh(...words: readonly string[]): readonly string[] {
  const given = words.map((word) => `'${word}'`).join(' ');
  const script = `${zshScript(commands)}\n${NAMES}\ncompadd() { shift; print -l -- "$@" }\n_files() { print paths }\nwords=(longshore ${given}); CURRENT=${words.length + 1}; PREFIX='${words.at(-1) ?? ''}'; _longshore`;
  return lines(execFileSync('zsh', ['-fc', script], { encoding: 'utf8' }));
}

function fish(line: string): readonly string[] {
  const names = 'function longshore; printf "%s\\n" $argv[2]-one $argv[2]-two; end';
  const script = `${names}\n${fishScript(commands)}\ncomplete -C '${line}'`;
  const directory = tempDirectory('fish');
  try {
    const file = join(directory.path, 'script.fish');
    writeFileSync(file, script);
    const offered = execFileSync('fish', ['--no-config', file], { encoding: 'utf8' });
    return lines(offered).map((offer) => offer.split('\t', 1)[0] ?? '');
  } finally {
    directory.remove();
  }
}

describe('bash', () => {
  test.for([
    [['depl'], ['deploy', 'deployment']],
    [
      ['task', ''],
      ['list', 'get', 'stop'],
    ],
    [['task', 'list', '--st'], ['--status']],
    [['--context', 'x', 'task', 'l'], ['list']],
    [['--con'], ['--context']],
    [
      ['webhook', 'deliveries', 'x', '--state', ''],
      ['delivered', 'failed', 'waiting'],
    ],
    [
      ['pool', 'set', 'gpu', '--requires-pool-selector', ''],
      ['yes', 'no'],
    ],
    [
      ['invoke', ''],
      ['deployments-one', 'deployments-two'],
    ],
    [['deployment', 'stop', 'deployments-t'], ['deployments-two']],
    [
      ['machine', 'list', '--pool', ''],
      ['pools-one', 'pools-two'],
    ],
    [
      ['volume', 'show', ''],
      ['volumes-one', 'volumes-two'],
    ],
    [
      ['map', 'get', ''],
      ['maps-one', 'maps-two'],
    ],
    [['queue', 'pop', 'queues-t'], ['queues-two']],
    [
      ['completion', ''],
      ['bash', 'zsh', 'fish'],
    ],
    // Paths are the shell's own matter.
    [['deploy', ''], []],
    [['secret', 'set', 'KEY', '--file', ''], []],
  ] as const)('%j is completed', ([words, offered]) => {
    const found = bash(...words);
    expect(found).toEqual(expect.arrayContaining([...offered]));
    if (words[0] !== 'task' && words[0] !== '--con') expect(found.length).toBe(offered.length);
  });

  test('knows every command and every option of it', () => {
    const script = bashScript(commands);
    const missing = commands.flatMap(({ path, options }) =>
      options
        .flatMap(({ flags }) => flags)
        .filter((flag) => !new RegExp(`'${path}'\\) echo '[^']*${flag}`).test(script)),
    );
    expect(missing).toEqual([]);
  });
});

describe('zsh', () => {
  test.for([
    [
      ['task', ''],
      ['list', 'get', 'stop'],
    ],
    [
      ['--context', 'x', 'pool', 'show', ''],
      ['pools-one', 'pools-two'],
    ],
    [
      ['webhook', 'deliveries', 'x', '--state', ''],
      ['delivered', 'failed', 'waiting'],
    ],
    [['deploy', ''], ['paths']],
  ] as const)('%j is completed', ([words, offered]) => {
    expect(zsh(...words)).toEqual(expect.arrayContaining([...offered]));
  });
});

describe('fish', () => {
  test.for([
    ['longshore depl', ['deploy', 'deployment']],
    ['longshore task ', ['list', 'get', 'stop']],
    ['longshore task list --st', ['--status']],
    ['longshore --context x pool show ', ['pools-one', 'pools-two']],
    ['longshore webhook deliveries x --state ', ['delivered', 'failed', 'waiting']],
  ] as const)('%j is completed', ([line, offered]) => {
    expect(fish(line)).toEqual(expect.arrayContaining([...offered]));
  });
});
