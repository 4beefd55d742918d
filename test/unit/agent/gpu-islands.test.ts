// NVLink islands: how the tool's matrix is read, and when it is asked for.
import { describe, expect, onTestFinished, test } from 'vitest';
import { NvidiaSmi } from '../../../agent/devices/nvidia-smi.ts';
import { parseIslands } from '../../../agent/devices/parse.ts';
import type { GpuRow } from '../../../agent/devices/parse.ts';
import { GpuHost } from '../../helpers/gpu-host.ts';
import { aGpu } from '../../helpers/gpus.ts';

/** A matrix as the tool prints it, with a network card beside the GPUs. @param links - pairs of GPUs */
function matrix(count: number, links: readonly (readonly [number, number])[]): string {
  const names = Array.from({ length: count }, (_none, at) => `GPU${at}`);
  const cell = (a: number, b: number): string =>
    a === b
      ? ' X '
      : links.some(([one, other]) => (one === a && other === b) || (one === b && other === a))
        ? 'NV4'
        : 'PHB';
  const rows = names.map(
    (name, row) => `${name}\t${names.map((_name, column) => cell(row, column)).join('\t')}\tSYS\t0-15,32-47\t0\t\tN/A`,
  );
  const card = `NIC0\t${names.map(() => 'SYS').join('\t')}\t X \t\t\t`;
  const head = `\u001b[4m\t${names.join('\t')}\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\u001b[0m`;
  return [
    head,
    ...rows,
    card,
    '',
    'Legend:',
    '',
    '  X    = Self',
    '  NV#  = a bonded set of # NVLinks',
    'NIC0: mlx5_0',
    '',
  ].join('\n');
}
const pairs = (...groups: readonly (readonly number[])[]): (readonly [number, number])[] =>
  groups.flatMap((group) => group.flatMap((a) => group.flatMap((b) => (a < b ? [[a, b] as const] : []))));

describe('the matrix of links', () => {
  test.each([
    ['GPUs behind switches', 8, pairs([0, 1, 2, 3, 4, 5, 6, 7]), [1, 1, 1, 1, 1, 1, 1, 1]],
    ['bridges between pairs', 4, pairs([0, 2], [1, 3]), [1, 2, 1, 2]],
    ['one pair, and two alone', 4, pairs([1, 2]), [undefined, 1, 1, undefined]],
    ['no link', 2, [], [undefined, undefined]],
    // As in a DGX-1: two groups of four, and single links between them.
    [
      'a cube',
      8,
      [...pairs([0, 1, 2, 3], [4, 5, 6, 7]), ...pairs([0, 4], [1, 5], [2, 6], [3, 7])],
      [1, 1, 1, 1, 2, 2, 2, 2],
    ],
  ] as const)('of %s', (_what, count, links, islands) => {
    const found = parseIslands({ stdout: matrix(count, links) });
    expect(Array.from({ length: count }, (_none, index) => found?.get(index))).toEqual(islands);
  });

  test.each([
    ['nothing', ''],
    ['words', 'Failed to initialize NVML: Unknown Error\n'],
    ['a single GPU', matrix(1, [])],
    [
      'a matrix that stops early',
      matrix(4, pairs([0, 1, 2, 3]))
        .split('\n')
        .slice(0, 3)
        .join('\n'),
    ],
    ['more GPUs than a host has', matrix(65, [])],
  ])('that is none: %s', (_what, stdout) => {
    expect(parseIslands({ stdout })).toBeUndefined();
  });
});

test('islands are reported, asked for once for a set of devices, and absent where the tool does not tell', async () => {
  const gpus = [0, 1, 2, 3].map((index) => aGpu(index));
  const host = new GpuHost({
    gpus,
    links: [
      [0, 1],
      [2, 3],
    ],
  });
  onTestFinished(() => host.close());
  const islands = () => host.gpus.report().map(({ nvlinkIsland }) => nvlinkIsland);
  const questions = () => host.asked.filter((one) => one.startsWith('topo')).length;
  await host.start();
  expect(islands()).toEqual([1, 1, 2, 2]);
  await host.looks();
  expect(questions()).toBe(1);
  host.nvidia.is({ gpus: gpus.slice(0, 3), links: [[0, 1, 2]] });
  await host.looks();
  expect([islands().slice(0, 3), questions()]).toEqual([[1, 1, 1], 2]);
});

test('a tool without the matrix is asked three times, and slices are in no island', async () => {
  let asked = 0;
  let isThere = false;
  const tool = new NvidiaSmi((args) => {
    asked += 1;
    expect(args).toEqual(['topo', '-m']);
    const stdout = isThere ? matrix(3, pairs([0, 1, 2])) : '';
    return Promise.resolve({ kind: 'done', exitCode: isThere ? 0 : 2, stdout, stderr: '' });
  });
  const rows = (count: number) =>
    Array.from({ length: count }, (_none, index) => ({
      index,
      uuid: `GPU-${index}`,
      migEnabled: index === 1,
    })) as unknown as GpuRow[];
  const two = rows(2);
  for (let looks = 0; looks < 6; looks += 1) expect(await tool.withIslands(two)).toBe(two);
  expect(asked).toBe(3);
  isThere = true;
  expect((await tool.withIslands(rows(3))).map(({ nvlinkIsland }) => nvlinkIsland)).toEqual([1, undefined, 1]);
});
