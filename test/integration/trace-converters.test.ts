// Converters of public traces, on lines that are written by hand in the form of each: what they make is a trace that is
// simulated, and a fault is said with its line.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterAll, describe, expect, test } from 'vitest';
import { Simulation } from '#scheduler/control/simulator/simulation.ts';
import type { PolicyResult } from '#scheduler/control/simulator/simulation.ts';
import { readTraceLine } from '#scheduler/control/simulator/trace.ts';
import { tempDirectory } from '../helpers/programs.ts';
import { ROOT } from '../helpers/repository.ts';

type Line = Readonly<Record<string, unknown>>;
const PROGRAM = join(ROOT, 'scripts/traces/convert.mjs');
const { converted } = (await import(PROGRAM)) as {
  converted: (options: Line, counts: { leftOut: number }) => AsyncGenerator<Line>;
};

const directory = tempDirectory('trace-converters');
afterAll(() => directory.remove());
function write(name: string, text: string): string {
  writeFileSync(join(directory.path, name), text);
  return join(directory.path, name);
}
const csv = (...lines: readonly string[]): string => `${lines.join('\n')}\n`;

async function convert(
  format: string,
  file: string,
  more: Line = {},
): Promise<{ lines: readonly Line[]; leftOut: number }> {
  const counts = { leftOut: 0 };
  const lines: Line[] = [];
  for await (const line of converted({ format, file, ...more }, counts)) lines.push(line);
  return { lines, leftOut: counts.leftOut };
}

function simulate(lines: readonly Line[], machine: Line): PolicyResult {
  const simulation = new Simulation('share', 1);
  for (const line of [{ kind: 'machine', machine: 'm', ...machine }, ...lines]) simulation.accept(readTraceLine(line));
  return simulation.finish().result;
}
const tasksOf = (lines: readonly Line[]): readonly Line[] =>
  lines.flatMap(({ kind, ...rest }) => (kind === 'task' ? [rest] : []));
const deploysOf = (lines: readonly Line[]): readonly Line[] =>
  lines.flatMap(({ kind, ...rest }) => (kind === 'deploy' ? [rest] : []));

const HELIOS = csv(
  'job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue',
  '1,uA,vcOne,1,4,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:42:41,100,0',
  '2,uA,vcOne,8,64,1,FAILED,2020-06-09 18:41:05,2020-06-09 18:41:06,2020-06-09 18:41:26,20,1',
  '3,uB,vcTwo,16,128,2,COMPLETED,2020-06-09 18:41:03,2020-06-09 18:41:10,2020-06-09 18:42:10,60,7',
  '4,uB,vcTwo,0,32,1,COMPLETED,2020-06-09 18:41:04,2020-06-09 18:41:04,2020-06-09 18:42:10,66,0',
  ...Array.from({ length: 16 }, (_none, n) => {
    const second = String(10 + n);
    return `${5 + n},uC,vcThree,${1 + (n % 4)},8,1,COMPLETED,2020-06-09 18:41:${second},2020-06-09 18:41:${second},2020-06-09 18:42:00,${50 - n},0`;
  }),
);

describe('Helios', () => {
  const file = write('helios.csv', HELIOS);

  test('jobs are tasks with containers of their own, in the order in which they were submitted', async () => {
    const { lines, leftOut } = await convert('helios', file);
    expect(leftOut).toBe(1);
    expect(tasksOf(lines).slice(0, 3)).toEqual([
      { t: 0, deployment: 'vcOne-1', seconds: 100 },
      { t: 2, deployment: 'vcTwo-8', seconds: 60, count: 2 },
      { t: 4, deployment: 'vcOne-8', seconds: 20 },
    ]);
    expect(deploysOf(lines)[0]).toEqual({
      t: 0,
      deployment: 'vcOne-1',
      workspace: 'vcOne',
      gpu: 'any',
      gpus: 1,
      one_task: true,
    });
    expect(lines.at(-1)).toEqual({ t: 24, kind: 'end' });
    const result = simulate(lines, { count: 10, gpu: 'V100', gpus: 8 });
    expect(result.all).toMatchObject({ tasks: 20, unserved: 0 });
    expect(result.workspaces.map(({ workspace }) => workspace).toSorted()).toEqual(['vcOne', 'vcThree', 'vcTwo']);
  });

  test('are the same when little is in memory at once', async () => {
    expect(await convert('helios', file, { sortAtOnce: 3 })).toEqual(await convert('helios', file));
  });

  test('a part of the workspaces is taken, the same each time', async () => {
    const many = csv(
      ...HELIOS.split('\n').slice(0, 1),
      ...Array.from({ length: 1000 }, (_none, n) => `${n},u,vc${n},1,1,1,COMPLETED,2020-06-09 18:41:01,,,5,0`),
    );
    const sample = write('many.csv', many);
    const { lines, leftOut } = await convert('helios', sample, { sample: 0.2 });
    expect(deploysOf(lines).length).toBeGreaterThan(150);
    expect(deploysOf(lines).length).toBeLessThan(250);
    expect(deploysOf(lines).length + leftOut).toBe(1000);
    expect(await convert('helios', sample, { sample: 0.2 })).toEqual({ lines, leftOut });
  });

  test.each([
    ['a column that is not there', HELIOS.replace('gpu_num', 'gpus'), 'has no column gpu_num'],
    ['no number', HELIOS.replace(',100,0', ',long,0'), 'line 2: duration must be a number, 0 or more, and is "long"'],
    ['no time', HELIOS.replace('2020-06-09 18:41:05', 'yesterday'), 'line 3: submit_time must be a time'],
    ['quotes', HELIOS.replace('uA', '"uA"'), 'line 2 has quotes'],
    ['nothing', csv(HELIOS.split('\n')[0] ?? ''), 'has no work'],
  ])('with a fault says where it is: %s', async (name, text, said) => {
    await expect(convert('helios', write(`fault ${name}`, text))).rejects.toThrow(said);
  });
});

describe('Philly', () => {
  const attempt = (start: string, end: string, ...gpus: readonly number[]): Line => ({
    start_time: start,
    end_time: end,
    detail: gpus.map((count, n) => ({ ip: `m${n}`, gpus: Array.from({ length: count }, (_none, g) => `gpu${g}`) })),
  });
  const job = (vc: string, submitted: string, ...attempts: readonly Line[]): Line => ({
    status: 'Pass',
    vc,
    jobid: `application_{"${vc}"}`,
    attempts,
    submitted_time: submitted,
    user: 'u',
  });
  const JOBS = [
    job(
      'ee9e8c',
      '2017-10-07 01:11:39',
      attempt('2017-10-07 01:12:09', '2017-10-07 01:13:09', 8),
      attempt('2017-10-07 01:13:30', '2017-10-07 01:14:00', 8),
    ),
    job('ed69ec', '2017-10-07 01:11:09', attempt('2017-10-07 01:12:00', '2017-10-07 01:12:10', 8, 8)),
    job('ee9e8c', '2017-10-07 01:11:49', attempt('2017-10-07 01:12:00', 'None', 1)),
    job('ee9e8c', '2017-10-07 01:11:50'),
    ...Array.from({ length: 16 }, (_none, n) =>
      job(
        '6214e9',
        `2017-10-07 01:12:${10 + n}`,
        attempt('2017-10-07 01:20:00', `2017-10-07 01:20:${10 + n}`, 1 + (n % 2)),
      ),
    ),
  ];

  test.each([
    ['in lines', JSON.stringify(JOBS, null, 4)],
    ['in a single line', JSON.stringify(JOBS)],
  ])('attempts of a job are added up, %s', async (name, text) => {
    const { lines, leftOut } = await convert('philly', write(`philly ${name}`, text), { gpu: 'P100' });
    expect(leftOut).toBe(2);
    expect(tasksOf(lines).slice(0, 3)).toEqual([
      { t: 0, deployment: 'ed69ec-8-P100', seconds: 10, count: 2 },
      { t: 30, deployment: 'ee9e8c-8-P100', seconds: 90 },
      { t: 61, deployment: '6214e9-1-P100', seconds: 10 },
    ]);
    expect(simulate(lines, { count: 4, gpu: 'P100', gpus: 8 }).all).toMatchObject({ tasks: 19 });
  });

  test('with a fault says which entry it is', async () => {
    const text = JSON.stringify([...JOBS.slice(0, 2), { vc: 'a' }]);
    await expect(convert('philly', write('philly fault', text))).rejects.toThrow('entry 3 has no vc, submitted_time');
    await expect(convert('philly', write('philly cut', JSON.stringify(JOBS).slice(0, 900)))).rejects.toThrow(
      'ends within entry',
    );
  });
});

describe('Alibaba', () => {
  const TASKS = csv(
    'j1,worker,2.0,Terminated,110.0,160.0,600.0,29.296875,50.0,V100',
    'j1,ps,1.0,Terminated,110.0,160.0,600.0,29.296875,,',
    'j2,tensorflow,1.0,Failed,90.0,95.5,600.0,29.3,800.0,MISC',
    'j3,tensorflow,1.0,Running,120.0,,600.0,29.3,100.0,T4',
    'j9,tensorflow,1.0,Terminated,120.0,130.0,600.0,29.3,100.0,T4',
    ...Array.from(
      { length: 15 },
      (_none, n) => `j${10 + n},worker,1.0,Terminated,${200 + n}.0,${230 + n}.0,100.0,1.0,${100 + 100 * (n % 2)}.0,T4`,
    ),
  );
  const JOBS = csv(
    'j1,i1,alice,Terminated,100.0,160.0',
    'j2,i2,bob,Failed,80.0,95.5',
    'j3,i3,bob,Running,100.0,',
    'j4,i4,carol,Waiting,,',
    ...Array.from({ length: 15 }, (_none, n) => `j${10 + n},i,carol,Terminated,${190 + n}.0,${230 + n}.0`),
  );

  test('2020: instances are tasks of the user, from the time of the job; a part of a GPU is a whole one', async () => {
    const options = { jobs: write('pai_job.csv', JOBS) };
    const { lines, leftOut } = await convert('alibaba-2020', write('pai_task.csv', TASKS), options);
    // Without a GPU, without an end, and of an unknown job.
    expect(leftOut).toBe(3);
    expect(tasksOf(lines).slice(0, 2)).toEqual([
      { t: 0, deployment: 'bob-8-MISC', seconds: 5.5, count: 1 },
      { t: 20, deployment: 'alice-1-V100', seconds: 50, count: 2 },
    ]);
    expect(tasksOf(lines)).toHaveLength(17);
    const named = csv(
      'job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type',
      TASKS,
    );
    expect(await convert('alibaba-2020', write('named.csv', named), options)).toEqual({ lines, leftOut });
    const { lines: any } = await convert('alibaba-2020', write('pai_task.csv', TASKS), { ...options, gpu: 'any' });
    expect(simulate(any, { count: 4, gpu: 'V100', gpus: 8 }).all).toMatchObject({ tasks: 18 });
    await expect(convert('alibaba-2020', write('pai_task.csv', TASKS))).rejects.toThrow('needs --jobs');
  });

  test('2023: pods are tasks from their place to their end, in workspaces by class of service', async () => {
    const pods = csv(
      'name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time',
      'openb-pod-0000,12000,16384,1,1000,,LS,Running,10,1000,20.0',
      'openb-pod-0001,88000,327680,8,1000,,Burstable,Succeeded,0,500,5.0',
      'openb-pod-0002,4000,15258,1,220,nan,BE,Running,30,90,30.0',
      'openb-pod-0003,16000,32768,1,1000,V100M16|V100M32,LS,Failed,40,45,',
      'openb-pod-0004,16000,32768,0,0,,LS,Succeeded,50,60,50.0',
      'openb-pod-0005,16000,32768,1,1000,,LS,Pending,55,,',
      ...Array.from(
        { length: 14 },
        (_none, n) => `openb-pod-${n + 6},1000,1024,1,460,,BE,Succeeded,${60 + n},${80 + n},${61 + n}.0`,
      ),
    );
    const { lines, leftOut } = await convert('alibaba-2023', write('pods.csv', pods));
    expect(leftOut).toBe(2);
    expect(tasksOf(lines).slice(0, 4)).toEqual([
      { t: 0, deployment: 'Burstable-8', seconds: 495 },
      { t: 10, deployment: 'LS-1', seconds: 980 },
      { t: 30, deployment: 'BE-1', seconds: 60 },
      { t: 40, deployment: 'LS-1-V100M16|V100M32', seconds: 5 },
    ]);
    expect(simulate(lines, { count: 4, gpu: 'V100M32', gpus: 8 }).all).toMatchObject({ tasks: 18, unserved: 0 });
  });
});

describe('Azure Functions', () => {
  const [app, func] = ['a'.repeat(64), 'f'.repeat(64)];

  test('2021: invocations are tasks from their begin, in workspaces by application', async () => {
    const text = csv(
      'app,func,end_timestamp,duration',
      `${app},${func},10.5,2.5`,
      `${app},${'e'.repeat(64)},9,8.5`,
      ...Array.from({ length: 18 }, (_none, n) => `${'b'.repeat(64)},${func},${20 + n}.25,0.125`),
    );
    const file = write('azure2021.csv', text);
    const { lines } = await convert('azure-2021', file);
    expect(tasksOf(lines).slice(0, 2)).toEqual([
      { t: 0, deployment: `${app.slice(0, 16)}-${'e'.repeat(16)}`, seconds: 8.5 },
      { t: 7.5, deployment: `${app.slice(0, 16)}-${func.slice(0, 16)}`, seconds: 2.5 },
    ]);
    const result = simulate(lines, { cpus: 16 });
    expect(result.all).toMatchObject({ tasks: 20, unserved: 0 });
    expect(result.workspaces).toHaveLength(2);
    const { lines: withGpus } = await convert('azure-2021', file, { gpu: 'T4' });
    expect(simulate(withGpus, { gpu: 'T4', gpus: 8 }).all.gpu_seconds).toBeGreaterThan(10);
  });

  test('2019: counts of minutes are tasks over each minute, with lengths by percentiles', async () => {
    const minutes = (counts: Readonly<Record<number, number>>): string =>
      Array.from({ length: 1440 }, (_none, n) => String(counts[n + 1] ?? 0)).join(',');
    const head = `HashOwner,HashApp,HashFunction,Trigger,${Array.from({ length: 1440 }, (_none, n) => n + 1).join(',')}`;
    const counts = csv(
      head,
      `owner1,app1,f1,http,${minutes({ 1: 3, 3: 60 })}`,
      `owner1,app1,f2,timer,${minutes({ 2: 1 })}`,
      `owner2,app2,f1,queue,${minutes({ 3: 5 })}`,
      `owner3,app3,f9,queue,${minutes({ 1: 5 })}`,
      ...Array.from({ length: 16 }, (_none, n) => `owner4,app4,f${n},http,${minutes({ [n + 4]: 2 })}`),
    );
    const columns = [0, 1, 25, 50, 75, 99, 100].map((one) => `percentile_Average_${one}`);
    const lengths = csv(
      `HashOwner,HashApp,HashFunction,Average,Count,Minimum,Maximum,${columns.join(',')}`,
      'owner1,app1,f1,200,63,100,900,100,110,150,200,300,800,900',
      'owner1,app1,f2,200,63,100,900,100,90,150,200,300,800,900',
      'owner2,app2,f1,5000,5,5000,5000,5000,5000,5000,5000,5000,5000,5000',
      ...Array.from({ length: 16 }, (_none, n) => `owner4,app4,f${n},10,2,10,10,10,10,10,10,10,10,10`),
    );
    const options = { durations: write('durations.csv', lengths) };
    const { lines, leftOut } = await convert('azure-2019', write('invocations.csv', counts), options);
    expect(leftOut).toBe(1);
    expect(tasksOf(lines).slice(0, 3)).toEqual([
      { t: 0, deployment: 'app1-f1', count: 3, over_seconds: 60 },
      { t: 60, deployment: 'app1-f2', count: 1, over_seconds: 60 },
      { t: 120, deployment: 'app1-f1', count: 60, over_seconds: 60 },
    ]);
    // A percentile is not below the one before it.
    expect(deploysOf(lines)[1]).toMatchObject({ run_seconds: { 0: 0.1, 1: 0.1, 25: 0.15, 100: 0.9 } });
    expect(simulate(lines, { cpus: 16 }).all.tasks).toBe(3 + 60 + 1 + 5 + 16 * 2 - 1);
    await expect(
      convert('azure-2019', write('half.csv', counts.replace('http,3,0,60,', 'http,3,0,0.5,')), options),
    ).rejects.toThrow('line 2: 3 must be a whole number, and is "0.5"');
  });
});

describe('the program', () => {
  const run = (...args: readonly string[]) => execa(process.execPath, [PROGRAM, ...args], { reject: false });

  test('writes lines to stdout, and what it left out to stderr', async () => {
    const { exitCode, stdout, stderr } = await run('helios', write('helios.csv', HELIOS));
    expect(exitCode).toBe(0);
    expect(stdout.trimEnd().split('\n')).toHaveLength(27);
    expect(stderr).toContain('1 rows of');
  });

  test.each([
    [['helios'], 'usage: convert.mjs FORMAT FILE'],
    [['hadoop', '/nowhere'], 'there is no format hadoop; there are azure-2019'],
    [['helios', '/nowhere'], 'ENOENT'],
    [['helios', '/nowhere', '--sample', '2'], '--sample 2 must be a part above 0'],
  ])('fails with %j: %s', async (args, text) => {
    const { exitCode, stderr } = await run(...args);
    expect(exitCode).toBe(1);
    expect(stderr).toContain(text);
  });
});
