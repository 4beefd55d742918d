// Compares the choice by sample with that of place.ts, which looks at every machine.
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import type { MachineId } from '#shared/domain/ids.ts';
import { Candidates } from '#scheduler/control/plan/candidates.ts';
import type { PlacementMachine, PlacementRequest } from '#scheduler/control/plan/filter.ts';
import { rejectionOf } from '#scheduler/control/plan/filter.ts';
import { MachineIndex } from '#scheduler/control/plan/machine-index.ts';
import { placeContainer } from '#scheduler/control/plan/place.ts';
import {
  cachesFilled,
  gpusLeft,
  imagePresent,
  ownPool,
  preferenceRank,
  preferred,
  spreadCount,
} from '#scheduler/control/plan/score.ts';
import { stories } from '../../helpers/stories.ts';
import { aMachine, aRequest, gpus, machines, manyMachines, MIB, request } from './made.ts';

const machineOf = (list: readonly PlacementMachine[], id: MachineId): PlacementMachine => {
  const found = list.find((one) => one.machineId === id);
  if (found === undefined) throw new Error(`there is no ${id}`);
  return found;
};
/** Criteria that sampling must never trade for speed. */
const standing = (one: PlacementMachine, wanted: PlacementRequest) => ({
  rank: preferenceRank(one, wanted),
  own: ownPool(one, wanted),
  priority: one.poolPriority,
  preferred: preferred(one, wanted),
  spread: spreadCount(one, wanted),
  caches: cachesFilled(one, wanted),
  image: imagePresent(one, wanted),
  gpusLeft: gpusLeft(one, wanted),
});
const used = (one: PlacementMachine, wanted: PlacementRequest, uuids: readonly string[]): PlacementMachine => ({
  ...one,
  freeCpuMillicores: one.freeCpuMillicores - wanted.cpuMillicores,
  freeMemoryBytes: one.freeMemoryBytes - wanted.memoryBytes,
  gpus: one.gpus.map((gpu) => (uuids.includes(gpu.uuid) ? { ...gpu, free: false } : gpu)),
});

describe('whatever the machines', () => {
  test('of few, the very one that a look at all of them chooses, with the same devices', () => {
    fc.assert(
      fc.property(request, machines, (wanted, list) => {
        const { rejections, ...placed } = placeContainer(wanted, list);
        const candidates = new Candidates(list);
        const chosen = candidates.find(wanted);
        if (placed.kind === 'placed') expect({ kind: 'placed', ...chosen }).toEqual(placed);
        else expect(chosen).toBeUndefined();
        if (placed.kind === 'rejected') expect(candidates.reasons(wanted)).toEqual(rejections);
      }),
      { numRuns: stories(1500) },
    );
  });

  test('of many, one that can take it, whenever any can, and none that is wanted less; else the same reasons', () => {
    fc.assert(
      fc.property(request, manyMachines, (wanted, list) => {
        const all = placeContainer(wanted, list);
        const chosen = new Candidates(list).find(wanted);
        if (all.kind === 'rejected') {
          expect(chosen).toBeUndefined();
          return;
        }
        if (chosen === undefined) throw new Error('none was found');
        const machine = machineOf(list, chosen.machineId);
        expect(rejectionOf(machine, wanted)).toBeUndefined();
        expect(standing(machine, wanted)).toEqual(standing(machineOf(list, all.machineId), wanted));
        expect({ kind: 'placed', ...chosen, rejections: {} }).toEqual(placeContainer(wanted, [machine]));
      }),
      { numRuns: stories(1000) },
    );
  });

  test('kept up to date by change, it chooses as if it had been made anew', () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constant('place' as const), wanted: request }),
      fc.record({ kind: fc.constant('ready' as const), at: fc.nat(), ready: fc.boolean() }),
      fc.record({ kind: fc.constant('image' as const), at: fc.nat(), has: fc.boolean() }),
      fc.record({ kind: fc.constant('cache' as const), at: fc.nat(), has: fc.boolean() }),
      fc.record({ kind: fc.constant('delete' as const), at: fc.nat() }),
    );
    fc.assert(
      fc.property(machines, fc.array(step, { maxLength: 30 }), (list, steps) => {
        const candidates = new Candidates(list);
        const now = new Map(list.map((one) => [one.machineId, one]));
        const change = (at: number, changed: (one: PlacementMachine) => PlacementMachine): void => {
          const one = [...now.values()][at % Math.max(1, now.size)];
          if (one === undefined) return;
          now.set(one.machineId, changed(one));
          candidates.set(changed(one));
        };
        for (const one of steps) {
          if (one.kind === 'ready') change(one.at, (machine) => ({ ...machine, ready: one.ready }));
          else if (one.kind === 'image')
            change(one.at, (machine) => ({ ...machine, images: new Set(one.has ? ['img'] : []) }));
          else if (one.kind === 'cache')
            change(one.at, (machine) => ({ ...machine, caches: new Set(one.has ? ['c-1'] : []) }));
          else if (one.kind === 'delete') {
            const id = [...now.keys()][one.at % Math.max(1, now.size)];
            if (id !== undefined && now.delete(id)) candidates.delete(id);
          } else {
            const placed = candidates.find(one.wanted);
            const { rejections: _, ...anew } = placeContainer(one.wanted, now.values());
            expect({ kind: placed === undefined ? 'rejected' : 'placed', ...placed }).toEqual(anew);
            if (placed === undefined) continue;
            const machine = now.get(placed.machineId);
            if (machine === undefined) throw new Error('it chose a machine that is gone');
            now.set(machine.machineId, used(machine, one.wanted, placed.gpuUuids));
            candidates.set(used(machine, one.wanted, placed.gpuUuids));
          }
        }
        expect(candidates.size).toBe(now.size);
      }),
      { numRuns: stories(700) },
    );
  });
});

const of = (count: number, changes: (index: number) => Partial<PlacementMachine> = () => ({})): PlacementMachine[] =>
  Array.from({ length: count }, (_none, index) => aMachine(changes(index)));
const place = (list: readonly PlacementMachine[], wanted: PlacementRequest): PlacementMachine => {
  const candidates = new Candidates(list);
  const placed = candidates.find(wanted);
  if (placed === undefined) throw new Error(JSON.stringify(candidates.reasons(wanted)));
  return machineOf(list, placed.machineId);
};

describe('among thousands', () => {
  test('a container a machine of one deployment, while machines have none of it', () => {
    const list = of(2000, () => ({ freeCpuMillicores: 16_000, totalCpuMillicores: 16_000 }));
    const candidates = new Candidates(list);
    const siblings = new Map<MachineId, number>();
    for (let seed = 0; seed < 400; seed += 1) {
      const placed = candidates.find(aRequest({ siblings, seed: `${seed}`, cpuMillicores: 1, memoryBytes: MIB }));
      if (placed === undefined) throw new Error('not placed');
      siblings.set(placed.machineId, (siblings.get(placed.machineId) ?? 0) + 1);
    }
    expect(Math.max(...siblings.values())).toBe(1);
  });

  test('the one that holds the image, and the one with room beside many that just have none', () => {
    const list = of(2000, (index) => ({ images: new Set(index === 1234 ? ['rare'] : ['common']) }));
    expect(place(list, aRequest({ image: 'rare' }))).toBe(list[1234]);
    const tight = of(2000, (index) => ({ freeCpuMillicores: index === 777 ? 1000 : 999 }));
    expect(place(tight, aRequest({ cpuMillicores: 1000 }))).toBe(tight[777]);
  });

  test('the model named first, where one machine in thousands has one left', () => {
    const list = of(2000, (index) => ({
      gpus: [...gpus('H100', [index === 99], `h${index}`), ...gpus('A10G', [true, true], `a${index}`)],
    }));
    expect(place(list, aRequest({ gpu: ['H100', 'A10G'], gpuCount: 1, cpuMillicores: 1 }))).toBe(list[99]);
  });

  test('those with a required label, before all those with a preferred one, and the fullest last', () => {
    const rules = { require: {}, forbid: {}, prefer: {}, spread: '' };
    const list = of(2000, (index) => ({
      labels: { zone: index === 777 || index === 1234 ? 'a' : 'b', ...(index === 1234 ? { disk: 'nvme' } : {}) },
      freeCpuMillicores: index === 1234 ? 4000 : 2000,
    }));
    expect(place(list, aRequest({ labels: { ...rules, require: { zone: ['a'] } } }))).toBe(list[777]);
    const both = { require: { zone: ['a', 'b'] }, prefer: { disk: ['nvme'] } };
    expect(place(list, aRequest({ labels: { ...rules, ...both } }))).toBe(list[1234]);
    const candidates = new Candidates(list);
    const wanted = aRequest({ labels: { ...rules, require: { zone: ['c'] } } });
    expect(candidates.find(wanted)).toBeUndefined();
    candidates.set(aMachine({ machineId: 'm-new' as MachineId, labels: { zone: 'c' } }));
    expect(candidates.find(wanted)?.machineId).toBe('m-new');
  });

  test('a machine of the place with the fewest containers of the deployment, also where it is emptier', () => {
    const list = of(2000, (index) => ({
      labels: { zone: ['a', 'b', 'c'][index % 3] ?? '' },
      freeCpuMillicores: index % 3 === 2 ? 4000 : 1500,
      images: new Set(index % 3 === 2 ? [] : ['img']),
    }));
    const labels = { require: {}, forbid: {}, prefer: {}, spread: 'zone' };
    const zones = (counts: readonly (readonly [string, number])[]) =>
      place(list, aRequest({ labels, image: 'img', spreadCounts: new Map(counts) })).labels?.['zone'];
    expect(
      zones([
        ['a', 2],
        ['b', 1],
      ]),
    ).toBe('c');
    expect(
      zones([
        ['a', 2],
        ['b', 1],
        ['c', 2],
      ]),
    ).toBe('b');
  });

  test('the one whose device has the memory, or the compute capability', () => {
    const list = of(2000, (index) => ({
      gpus: gpus('H100', [true], `h${index}`).map((gpu) => ({
        ...gpu,
        memoryBytes: (index === 99 ? 96 : 80) * 1024 * MIB,
        computeCap: index === 1234 ? '9.1' : '9.0',
      })),
    }));
    const wanted = { gpuCount: 1, cpuMillicores: 1 };
    expect(place(list, aRequest({ gpu: ['any:>=94GiB'], ...wanted }))).toBe(list[99]);
    expect(place(list, aRequest({ gpu: ['H100:cc>=9.1'], ...wanted }))).toBe(list[1234]);
  });

  test('the model named first, where all but one of its machines are a little too full', () => {
    const h100 = of(2000, (index) => ({
      gpus: gpus('H100', [true], `h${index}`),
      freeCpuMillicores: index === 55 ? 1000 : 999,
    }));
    const a10g = of(20, (index) => ({ gpus: gpus('A10G', [true], `a${index}`) }));
    const wanted = aRequest({ gpu: ['H100', 'A10G'], gpuCount: 1, cpuMillicores: 1000 });
    expect(place([...a10g, ...h100], wanted)).toBe(h100[55]);
  });

  test('few are looked at, however many there are', () => {
    const looks = (count: number): number => {
      let looked = 0;
      const list = of(count, (index) => ({ freeCpuMillicores: 1000 + ((index * 7919) % 3000) })).map((one) =>
        Object.defineProperty({ ...one }, 'freeDiskBytes', {
          get: () => {
            looked += 1;
            return null;
          },
        }),
      );
      const candidates = new Candidates(list);
      looked = 0;
      for (let seed = 0; seed < 50; seed += 1) candidates.find(aRequest({ seed: `${seed}` }));
      return looked / 50;
    };
    expect(looks(5000)).toBeLessThanOrEqual(1.5 * looks(500));
  });

  test('of many images in turn, none has its machines put into an index for each request', () => {
    const candidates = new Candidates(of(500, (index) => ({ images: new Set([`image-${index % 300}`]) })));
    const put = vi.spyOn(MachineIndex.prototype, 'put');
    const found = Array.from({ length: 900 }, (_none, turn) => {
      const image = `image-${turn % 300}`;
      const choice = candidates.find(aRequest({ image, seed: `${turn}` }));
      return choice !== undefined && candidates.get(choice.machineId)?.images.has(image) === true;
    });
    expect(found.every(Boolean)).toBe(true);
    expect(put).not.toHaveBeenCalled();
    for (let turn = 0; turn < 4; turn += 1) candidates.find(aRequest({ image: 'image-7', seed: `${turn}` }));
    expect(put).toHaveBeenCalledTimes(2);
    put.mockRestore();
  });

  test('a request that none has room for is refused again without a look at machines', () => {
    let looked = 0;
    const list = of(5000, (index) => ({
      freeCpuMillicores: 900 + (index % 100),
      gpus: index % 2 === 0 ? gpus('A10G', [true], `a${index}`) : [],
      cpuWorkAllowed: true,
    })).map((one) =>
      Object.defineProperty({ ...one }, 'poolOwner', {
        get: () => {
          looked += 1;
          return null;
        },
      }),
    );
    const candidates = new Candidates(list);
    expect(candidates.find(aRequest({ cpuMillicores: 1000 }))).toBeUndefined();
    looked = 0;
    expect(candidates.find(aRequest({ cpuMillicores: 1001 }))).toBeUndefined();
    expect(looked).toBeLessThan(50);
  });
});
