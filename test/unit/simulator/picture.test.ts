// Pictures of a simulation: what is drawn, and that any name makes a document that is well formed.
import { describe, expect, test } from 'vitest';
import { usePicture, waitsPicture } from '#scheduler/control/simulator/picture.ts';
import type { Policy, Simulated } from '#scheduler/control/simulator/simulation.ts';
import { Simulation } from '#scheduler/control/simulator/simulation.ts';
import { readTraceLine } from '#scheduler/control/simulator/trace.ts';
import type { Line } from './traces.ts';

function run(lines: readonly Line[], policy: Policy = 'share'): Simulated {
  const simulation = new Simulation(policy, 1);
  for (const line of lines) simulation.accept(readTraceLine(line));
  return simulation.finish();
}

const world = (names: readonly string[], seconds = 3600): readonly Line[] => [
  { kind: 'machine', machine: 'm', gpu: 'H100', gpus: 8 },
  ...names.map((workspace) => ({ kind: 'deploy', deployment: workspace, workspace, gpu: 'H100', one_task: true })),
  ...names.map((deployment) => ({ t: 0, kind: 'task', deployment, seconds: 60, count: 100 })),
  { t: seconds, kind: 'end' },
];

/** Heights of the paths that are filled, in their order. */
const heights = (svg: string): readonly number[] =>
  [...svg.matchAll(/<path d="M([^"]*)Z" fill/g)].map(([, path = '']) => {
    const ys = path.split('L').map((point) => Number(point.split(' ')[1]));
    return Math.max(...ys) - Math.min(...ys);
  });

describe('the picture of GPUs', () => {
  test('has a panel for each policy, in which two that share alike have half of the height each', () => {
    const all = [run(world(['a', 'b']), 'arrival'), run(world(['a', 'b']), 'share')];
    const svg = usePicture(all, 3600);
    expect(svg.match(/>(arrival|share)</g)).toEqual(['>arrival<', '>share<']);
    expect(heights(svg)).toHaveLength(4);
    expect(svg).not.toMatch(/NaN|undefined|Infinity/);
    const [below = 0, above = 0] = heights(usePicture([run(world(['a', 'b'], 600))], 600));
    expect(below).toBeCloseTo(75, 0);
    expect(above).toBeCloseTo(75, 0);
  });

  test('has the largest seven, and the others together', () => {
    const names = Array.from({ length: 12 }, (_none, n) => `w${n}`);
    const svg = usePicture([run(world(names))], 3600);
    expect(heights(svg)).toHaveLength(8);
    expect(svg).toContain('>others<');
    expect(waitsPicture([run(world(names)).result]).match(/<rect x/g)).toHaveLength(7);
  });

  test('has few points, however long the trace is', () => {
    const day = 86_400;
    const svg = usePicture([run(world(['a', 'b'], 30 * day))], 30 * day);
    expect(svg.length).toBeLessThan(20_000);
    expect(svg).toContain('>30 d<');
  });

  test.each([['<script>alert(1)</script>'], ['a&b "c"'], ['x'.repeat(128)]])('takes the name %s', (name) => {
    const one = run(world([name, 'b']));
    for (const svg of [usePicture([one], 3600), waitsPicture([one.result])]) {
      expect(svg).not.toContain('<script');
      // Every & begins an entity, and every element is closed.
      expect(svg.replaceAll(/&(amp|lt|gt|quot);/g, '')).not.toContain('&');
      for (const tag of ['text', 'title', 'svg', 'style'])
        expect(svg.split(`<${tag}`).length).toBe(svg.split(`</${tag}>`).length);
    }
  });

  test('is drawn without anything, too', () => {
    const one = run([{ t: 5, kind: 'end' }]);
    expect(usePicture([one], 5)).not.toMatch(/NaN|undefined|Infinity/);
    expect(waitsPicture([one.result])).not.toMatch(/NaN|undefined|Infinity/);
  });
});
