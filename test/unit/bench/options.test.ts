import { spawnSync } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { AGAINST_SUITES, parseOptions, SUITES, USAGE } from '../../../bench/options.ts';

describe('the command line of the benchmarks', () => {
  test('without options means everything, five rounds, 12 percent', () => {
    expect(parseOptions([])).toEqual({
      suites: SUITES,
      isQuick: false,
      rounds: 5,
      jsonPath: 'bench/results/latest.jsonl',
      maxOutside: 0.12,
      isGate: false,
      profileDir: undefined,
      against: undefined,
    });
  });

  test('--help says what there is and ends well', () => {
    const ran = spawnSync(process.execPath, ['bench/main.ts', '--help'], { encoding: 'utf8', timeout: 60_000 });
    expect(ran).toMatchObject({ status: 0, stderr: '', stdout: `${USAGE}\n` });
  });

  test('a short run is one round, unless more are asked for', () => {
    expect(parseOptions(['--quick']).rounds).toBe(1);
    expect(parseOptions(['--quick', '--rounds', '3']).rounds).toBe(3);
  });

  test('some benchmarks come in the order in which they need each other', () => {
    expect(parseOptions(['--only', 'start, streams, warm']).suites).toEqual(['warm', 'streams', 'start']);
  });

  test('another commit is compared in the benchmarks that a commit can change', () => {
    expect(parseOptions(['--against', 'HEAD~1'])).toMatchObject({ against: 'HEAD~1', suites: AGAINST_SUITES });
    expect(parseOptions(['--against', 'HEAD~1', '--only', 'cold']).suites).toEqual(['cold']);
  });

  test.each([
    [['--against', ''], '--against: must name a commit'],
    [['--against', 'HEAD', '--profile', 'p'], '--profile: cannot be used with --against'],
    [['--against', 'HEAD', '--only', 'pull'], '--only: there is no benchmark "pull"; there are warm, throughput, cold'],
    [['--only', 'warm,hot'], '--only: there is no benchmark "hot"; there are warm, throughput, cold, scale'],
    [['--rounds', '0'], '--rounds: must be a whole number from 1 to 100, got "0"'],
    [['--rounds', '2.5'], '--rounds: must be a whole number from 1 to 100, got "2.5"'],
    [['--max-outside', '101'], '--max-outside: must be a whole number from 0 to 100, got "101"'],
    [['--fast'], '--fast'],
    [['warm'], 'warm'],
  ])('%j is refused with a sentence that names it', (args, text) => {
    expect(() => parseOptions(args)).toThrow(text);
  });
});
