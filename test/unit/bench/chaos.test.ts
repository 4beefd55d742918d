// The audit of the kill rounds finds planted faults, and is silent where all is
// well. The faults: a loss, a double run, a wrong result, a second final state.
import { describe, expect, test } from 'vitest';
import { notServed, overlaps, tallyOf, tallyText } from '../../../bench/chaos/absence.ts';
import type { Asked } from '../../../bench/chaos/absence.ts';
import { audit, repeatedRuns, resultOf } from '../../../bench/chaos/audit.ts';
import type { Books, Fault, Kept, Run, Sent } from '../../../bench/chaos/audit.ts';
import { wrongEnds } from '../../../bench/chaos/ends.ts';
import { Patience, contradictions, unpaired } from '../../../bench/chaos/leases.ts';
import type { Lease, Look, SeenContainer } from '../../../bench/chaos/leases.ts';
import { parseChaosOptions } from '../../../bench/chaos/options.ts';

const call = (n: number, fields: Partial<Sent> = {}): Sent => ({
  n,
  sync: true,
  taskId: `call-${n}`,
  attempts: 1,
  fails: 0,
  ...fields,
});
const put = (n: number, fields: Partial<Sent> = {}): Sent => ({
  ...call(n),
  sync: false,
  taskId: `put-${n}`,
  ...fields,
});

interface Planted {
  readonly kept?: Partial<Kept> | 'forgotten';
  readonly runs?: readonly Run[];
  readonly seen?: readonly string[];
}

/** Books in which all accounts agree, but for the fault planted on the first task. */
function books(sent: readonly Sent[], planted: Planted = {}): Books {
  const kept = new Map<string, Kept>();
  const seen = new Map<string, readonly string[]>();
  const runs: Run[] = [];
  for (const [at, one] of sent.entries()) {
    const status = one.fails < one.attempts ? 'COMPLETE' : 'ERROR';
    const changes = at === 0 ? planted : {};
    const whole: Kept = { status, result: status === 'COMPLETE' ? resultOf(one.n) : 'null', listed: status };
    if (changes.kept !== 'forgotten') kept.set(one.taskId, { ...whole, ...changes.kept });
    seen.set(one.taskId, changes.seen ?? [status]);
    const asked = Math.min(one.fails + 1, one.attempts);
    runs.push(...(changes.runs ?? Array.from({ length: asked }, () => ({ n: one.n, taskId: one.taskId }))));
  }
  return { sent, kept, seen, runs, lossesAllowed: 2 };
}

const faults = (found: Books): readonly Fault[] => audit(found).map(({ fault }) => fault);
const times = (count: number, run: Run): readonly Run[] => Array.from({ length: count }, () => run);

describe('the audit of the kill rounds', () => {
  test('is silent where callers, installation and handlers agree', () => {
    const sent = [call(1), put(2), put(3, { attempts: 3, fails: 2 }), put(4, { attempts: 3, fails: 3 })];
    expect(audit(books(sent))).toEqual([]);
    expect(repeatedRuns(books(sent))).toBe(0);
  });

  const table: readonly {
    readonly what: string;
    readonly sent: Sent;
    readonly planted: Planted;
    readonly fault: Fault;
  }[] = [
    { what: 'a task that nobody knows any more', sent: put(1), planted: { kept: 'forgotten' }, fault: 'lost' },
    {
      what: 'a task that is known by its id alone',
      sent: put(1),
      planted: { kept: { listed: undefined } },
      fault: 'lost',
    },
    {
      what: 'a task that never ended',
      sent: put(1),
      planted: { kept: { status: 'RUNNING', listed: 'RUNNING' }, seen: [] },
      fault: 'not_ended',
    },
    {
      what: 'a task with two final states, one after the other',
      sent: put(1),
      planted: { seen: ['ERROR', 'COMPLETE'] },
      fault: 'two_final_states',
    },
    {
      what: 'a task with two final states in two places',
      sent: put(1),
      planted: { kept: { listed: 'ERROR' } },
      fault: 'two_final_states',
    },
    {
      what: 'a task that ended otherwise than its handler',
      sent: put(1),
      planted: { kept: { status: 'ERROR', listed: 'ERROR' }, seen: ['ERROR'] },
      fault: 'wrong_state',
    },
    {
      what: "a wrong result: another task's",
      sent: put(1),
      planted: { kept: { result: resultOf(2) } },
      fault: 'wrong_result',
    },
    {
      what: 'a synchronous task run twice',
      sent: call(1),
      planted: { runs: times(2, { n: 1, taskId: 'call-1' }) },
      fault: 'synchronous_ran_twice',
    },
    {
      what: 'a synchronous task run twice whose caller got no answer',
      sent: call(1, { taskId: '' }),
      planted: { runs: times(2, { n: 1, taskId: 'call-1' }) },
      fault: 'synchronous_ran_twice',
    },
    {
      what: 'an asynchronous task run beyond its attempts',
      sent: put(1, { attempts: 2 }),
      planted: { runs: times(5, { n: 1, taskId: 'put-1' }) },
      fault: 'beyond_its_attempts',
    },
    {
      what: 'a task that is complete without a run',
      sent: put(1),
      planted: { runs: [] },
      fault: 'complete_without_a_run',
    },
    {
      what: 'a run under an id that is not the one accepted',
      sent: put(1),
      planted: { runs: [{ n: 1, taskId: 'another' }] },
      fault: 'ran_under_another_id',
    },
    {
      what: 'a run of what nobody sent',
      sent: put(1),
      planted: {
        runs: [
          { n: 1, taskId: 'put-1' },
          { n: 77, taskId: 'x' },
        ],
      },
      fault: 'run_of_nothing_sent',
    },
  ];
  for (const { what, sent, planted, fault } of table) {
    test(`finds ${what}`, () => {
      expect(faults(books([sent, put(2)], planted))).toEqual([fault]);
    });
  }

  test('counts runs that no failure of the handler asked for', () => {
    expect(repeatedRuns(books([put(1)], { runs: times(3, { n: 1, taskId: 'put-1' }) }))).toBe(2);
  });

  test('holds a request that was not answered to nothing but its runs', () => {
    expect(audit(books([call(1, { taskId: '' })], { kept: 'forgotten', runs: [] }))).toEqual([]);
  });
});

describe('the options of the chaos rounds', () => {
  test('mean a kill of the scheduler on embedded stores unless they say otherwise', () => {
    expect(parseChaosOptions([])).toMatchObject({ rounds: 50, stores: 'embedded', kind: 'kill scheduler' });
    expect(parseChaosOptions(['--stores', 'servers', '--kill', 'redis', '--rounds', '3'])).toMatchObject({
      rounds: 3,
      stores: 'servers',
      kind: 'kill redis',
    });
  });

  test.each([
    [['--kill', 'replica'], { kind: 'kill replica' }],
    [['--kill', 'postgres'], { kind: 'kill postgres' }],
    [['--freeze', 'scheduler'], { kind: 'freeze scheduler', absenceMs: 15_000 }],
    [['--away', 'redis'], { kind: 'away redis', absenceMs: 60_000, mustServe: false }],
    [
      ['--away', 'postgres', '--for', '20', '--must-serve'],
      { kind: 'away postgres', absenceMs: 20_000, mustServe: true },
    ],
    [['--replace', 'scheduler'], { kind: 'replace scheduler' }],
  ])('%j runs on servers', (args, meant) => {
    expect(parseChaosOptions(args)).toMatchObject({ ...meant, stores: 'servers' });
  });

  test.each([
    [['--stores=mine'], '--stores: '],
    [['--kill=docker'], '--kill: '],
    [['--away=scheduler'], '--away: '],
    [['--rounds=0'], '--rounds: '],
    [['--rounds=many'], '--rounds: '],
    [['--settle=-1'], '--settle: '],
    [['--kill=redis', '--away=redis'], '--away: a run has one disturbance'],
    [['--kill=postgres', '--stores=embedded'], '--stores: kill postgres needs servers'],
    [['--for=3'], '--for: belongs to --away and --freeze'],
    [['--must-serve', '--freeze=scheduler'], '--must-serve: belongs to --away'],
    [['--preempt', '--kill=replica'], '--preempt: belongs to kinds with one scheduler'],
  ])('%j is refused with a sentence that names it', (args, text) => {
    expect(() => parseChaosOptions(args)).toThrow(text);
  });
});

describe('the requests that meet a disturbance', () => {
  const window = { fromMs: 100, untilMs: 200, replica: undefined };
  const asked = (facts: Partial<Asked>): Asked => ({
    what: 'call',
    askedMs: 150,
    answeredMs: 160,
    outcome: '200',
    ...facts,
  });

  test('are counted by answer, and those that it held up as late', () => {
    const all = [
      asked({}),
      asked({ what: 'put', outcome: '503 draining' }),
      asked({ outcome: 'unanswered' }),
      asked({ answeredMs: 201 }),
      asked({ askedMs: 50, answeredMs: 300 }),
      asked({ askedMs: 50, answeredMs: 99 }),
      asked({ askedMs: 201, answeredMs: 202 }),
    ];
    const tally = tallyOf(all, [window]);
    expect(tally).toEqual({ call: { 200: 1, unanswered: 1, late: 2 }, put: { '503 draining': 1 } });
    expect(tallyText(tally)).toBe('call: 200 × 1, unanswered × 1, late × 2; put: 503 draining × 1');
  });

  test.each([
    ['a refused one', [asked({}), asked({ outcome: '503' })]],
    ['a late one', [asked({}), asked({ answeredMs: 300 })]],
    ['one without an answer', [asked({}), asked({ outcome: 'unanswered' })]],
    ['none at all', [asked({ what: 'put' })]],
  ])('are a finding where the platform must go on: %s', (_what, all) => {
    expect(notServed(tallyOf(all, [window]), ['call'])).toEqual([expect.stringMatching(/^not_served: .*call: /)]);
  });

  test('are none where all of these were served, whatever became of the others', () => {
    expect(notServed(tallyOf([asked({}), asked({ what: 'far call', outcome: '503' })], [window]), ['call'])).toEqual(
      [],
    );
  });

  test('overlap it from its beginning to the end of its grace', () => {
    expect(overlaps(window, 50, 99)).toBe(false);
    expect(overlaps(window, 50, 100)).toBe(true);
    expect(overlaps(window, 201, 300)).toBe(false);
    expect(overlaps(window, 201, 300, 5)).toBe(true);
  });
});

describe('the audit of a machine whose agent is killed', () => {
  const one = (dockerId: string, facts: Partial<SeenContainer> = {}): SeenContainer => ({
    dockerId,
    containerId: `c-${dockerId}`,
    epoch: 1,
    running: true,
    gpus: [],
    ...facts,
  });
  const leaseOf = ({ containerId, epoch, gpus }: SeenContainer, facts: Partial<Lease> = {}): Lease => ({
    containerId,
    epoch,
    started: true,
    gpus,
    ...facts,
  });
  const looked = (
    seen: readonly SeenContainer[],
    leases: readonly Lease[] = seen.map((all) => leaseOf(all)),
  ): Look => ({
    before: leases,
    seen,
    after: leases,
  });
  const a = one('a', { gpus: ['GPU-1'] });
  const b = one('b', { gpus: ['GPU-2', 'GPU-3'] });

  test('is silent where every lease has its container, and one that is being removed has none any more', () => {
    const look = looked([a, b, one('old', { running: false, gpus: ['GPU-1'] })], [leaseOf(a), leaseOf(b)]);
    expect([...contradictions(look), ...unpaired(look)]).toEqual([]);
  });

  test('finds a container that runs twice', () => {
    const twice = [a, one('z', { containerId: 'c-a', epoch: 2 })];
    expect(contradictions(looked(twice))).toEqual(['container_twice: c-a runs as a, z']);
  });

  test('finds a device that two living containers have', () => {
    const other = one('b', { gpus: ['GPU-2', 'GPU-1'] });
    // The journal is empty: the engine's list alone decides.
    expect(contradictions(looked([a, other], []))).toEqual(['device_twice: GPU-1 is with c-a and c-b']);
  });

  test('finds a device that is leased to two, before either runs', () => {
    const leases = [leaseOf(a), leaseOf(b, { started: false, gpus: ['GPU-1'] })];
    expect(contradictions(looked([], leases))).toEqual([
      'lease_twice: GPU-1 is leased to c-a (epoch 1) and c-b (epoch 1)',
    ]);
  });

  test('finds a container that has another device than was leased to it', () => {
    expect(contradictions(looked([a], [leaseOf(a, { gpus: ['GPU-9'] })]))).toEqual([
      'not_its_lease: c-a (epoch 1) has GPU-1, and GPU-9 is leased to it',
    ]);
  });

  test('finds a container without a lease and a lease without a container, once they stay', () => {
    expect(unpaired(looked([a], []))).toEqual(['orphan: c-a (epoch 1) (a) runs, and the journal does not know it']);
    expect(unpaired(looked([], [leaseOf(a)]))).toEqual([
      'lease_left: c-a (epoch 1) has GPU-1 by the journal, and is not there',
    ]);
    // The container is not created yet, or was just now taken out of the books.
    expect(unpaired(looked([], [leaseOf(a, { started: false })]))).toEqual([]);
    expect(unpaired({ before: [leaseOf(a)], seen: [a], after: [] })).toEqual([]);
    expect(unpaired({ before: [leaseOf(a)], seen: [], after: [] })).toEqual([]);

    const patience = new Patience(1000);
    expect(patience.overdue(['x'], 0)).toEqual([]);
    expect(patience.overdue(['x', 'y'], 999)).toEqual([]);
    expect(patience.overdue(['x', 'y'], 1000)).toEqual(['x']);
    expect(patience.overdue(['y'], 1500)).toEqual([]);
    expect(patience.overdue(['x', 'y'], 2000)).toEqual(['y']);
  });

  test('finds a container that nobody wanted to end', () => {
    const end = { id: 'c-a', state: 'STOPPED', reason: 'scaled_in', message: '' };
    expect(wrongEnds([end])).toEqual([]);
    expect(wrongEnds([end, { ...end, state: 'FAILED', reason: 'killed', message: 'process exited' }])).toEqual([
      'wrong_end: c-a is FAILED (killed) process exited',
    ]);
  });
});
