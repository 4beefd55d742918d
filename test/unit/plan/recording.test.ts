// Recordings of a planner. That a random story is replayed with the same answers is a part of planner.test.ts.
import { describe, expect, test } from 'vitest';
import type { MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { DEFAULT_SHARING } from '#scheduler/domain/shares.ts';
import { Planner } from '#scheduler/control/plan/planner.ts';
import { RecordedPlanner } from '#scheduler/control/plan/recorded-planner.ts';
import type { Line } from '#scheduler/control/plan/recording.ts';
import { Replay } from '#scheduler/control/plan/replay.ts';
import { aMachine, aWanted, gpus, ids } from './made.ts';
import { Recorded } from './recorded.ts';

const FACTS = { quota: { gpus: 1, cpuMillicores: null }, volumeHomes: ids(), image: null };
const SECRETS = [
  'workspace-of-acme',
  'queue-of-acme',
  'pool-of-acme',
  'registry.acme.test/model:1',
  'volume-of-acme',
  'rack-of-acme',
  'cellar-of-acme',
  'attic-of-acme',
];

/** A planner that is asked everything, once, and its recording. */
function asked() {
  const recorded = new Recorded();
  const planner = new RecordedPlanner(() => ids('m-a'));
  planner.record(recorded);
  const [workspace = '', queue = '', pool = '', image = '', volume = '', label = '', value = '', other = ''] = SECRETS;
  const mine = {
    workspaceId: workspace as WorkspaceId,
    queue: queue as QueueName,
    poolName: pool,
    image,
    builtImage: image,
    caches: [volume],
    volumes: [volume],
    labels: {
      require: { [label]: [value] },
      forbid: { [label]: [other] },
      prefer: { [label]: [value] },
      spread: label,
    },
  };
  const machine = (id: string, changes: Parameters<typeof aMachine>[0] = {}) =>
    aMachine({
      machineId: id as MachineId,
      gpus: gpus('A10G', [true, true], id),
      labels: { [label]: value },
      ...changes,
    });
  const fleet = [
    machine('m-a'),
    machine('m-b', {
      poolName: pool,
      poolOwner: workspace,

      images: new Set([image]),
      caches: new Set([volume]),
    }),
  ];
  for (const one of fleet) planner.setMachine(one);
  const fresh = [1, 2, 3].map(() => aWanted({ gpu: ['A10G'], gpuCount: 1, cpuMillicores: 100 }));
  const [first = aWanted()] = fresh;
  const fitClass = planner.classOf(first);
  planner.chooseNew(fresh, FACTS);
  planner.refusalsOf(fitClass, 1000);
  planner.add(first);
  planner.doubtful = ids('m-c');
  const owned = aWanted({ ...mine, gpu: ['A10G'], gpuCount: 1 });
  planner.add(owned);
  planner.forgetFacts();
  for (let step = planner.next(); step !== undefined; step = planner.next())
    if (step.kind === 'ask')
      for (const one of step.classes)
        planner.know(one, { ...FACTS, image: { machines: ids('m-b'), inRegistry: true }, volumeHomes: ids('m-b') });
    else if (step.kind === 'chosen') planner.take(step.item.wanted, step.choice);
  planner.hold(first.id, {
    workspaceId: mine.workspaceId,
    queue: mine.queue,
    machineId: null,
    gpuCount: 1,
    cpuMillicores: 1,
    memoryBytes: 1,
  });
  planner.release(first.id, mine.workspaceId);
  planner.limitsChanged(mine.workspaceId);
  planner.setShare(mine.workspaceId, { weight: 2, guaranteed: { A10G: 1 }, limits: { A10G: 2 } });
  planner.shareChanged(mine.workspaceId);
  planner.setSharing({ ...DEFAULT_SHARING, order: 'arrival' });
  planner.imagesChanged();
  planner.deleteMachine('m-a' as MachineId);
  void planner.isBusy;
  planner.reserve(1000);
  planner.reclaim({ nowMs: 1000, candidates: [], growing: [] });
  planner.remove(owned.id);
  planner.forgetBlocks();
  planner.clear();
  return { recorded, planner, first };
}

const lineOf = ({ lines }: Recorded, what: string): number =>
  lines.findIndex((line) => (JSON.parse(line) as Line).do === what);

describe('a recording', () => {
  test('has every method that changes a planner or decides, and is replayed with the same answers', () => {
    const { recorded } = asked();
    expect(recorded.replayed()).toBeUndefined();
    const told = new Set(recorded.lines.map((line) => (JSON.parse(line) as Line).do));
    const reads = [
      'constructor',
      'get',
      'unread',
      'waiting',
      'classes',
      'choose',
      'shares',
      'turnOf',
      'placeOf',
      'machine',
    ];
    const methods = Object.getOwnPropertyNames(Planner.prototype).filter((name) => !reads.includes(name));
    expect([...told].filter((name) => name !== 'template' && name !== 'doubtful').toSorted()).toEqual(
      methods.toSorted(),
    );
  });

  test('does not hold the names of workspaces, queues, pools, images, volumes and labels', () => {
    const text = asked().recorded.lines.join('\n');
    expect(SECRETS.filter((secret) => text.includes(secret))).toEqual([]);
    expect(text).toContain('A10G');
  });

  test.for(['chooseNew', 'refusalsOf', 'next', 'add', 'classOf', 'reserve', 'reclaim'])(
    'with another answer of %s is found out',
    (what) => {
      const { recorded } = asked();
      const at = lineOf(recorded, what);
      const line = JSON.parse(recorded.lines[at] ?? '') as Line;
      recorded.lines[at] = JSON.stringify({ ...line, got: 'another' });
      expect(recorded.replayed()?.line).toMatchObject({ do: what, got: 'another' });
    },
  );

  test('of which an input is missing is found out', () => {
    const { recorded } = asked();
    recorded.lines.splice(lineOf(recorded, 'setMachine'), 1);
    expect(recorded.replayed()).toBeDefined();
  });

  test('begins with a planner that knows nothing, whatever it knew', () => {
    const { planner, first } = asked();
    planner.setMachine(aMachine());
    const again = new Recorded();
    planner.record(again);
    expect(planner.chooseNew([first], FACTS)).toEqual([undefined]);
    expect(again.replayed()).toBeUndefined();
  });

  test('ends when the tape takes no more', () => {
    const lines: Line[] = [];
    const planner = new RecordedPlanner();
    planner.record({ write: (line) => lines.push(line) < 2 });
    for (let count = 0; count < 5; count += 1) planner.setMachine(aMachine());
    expect(lines).toHaveLength(2);
    expect(lines[0]).toMatchObject({ do: 'setSharing' });
  });

  test('of a line that no planner is told is refused', () => {
    expect(() => new Replay().play({ do: 'toString' } as unknown as Line)).toThrow('"toString" is nothing');
    expect(() => new Replay().play({ do: 'add', wanted: ['c-1', 1, 7], got: true } as unknown as Line)).toThrow(
      'there is no template 7',
    );
  });
});
