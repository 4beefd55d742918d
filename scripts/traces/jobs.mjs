/**
 * Traces of jobs on GPUs. A job becomes a task with a container of its own. A job on several machines becomes as many
 * tasks, because each container is on one machine. Jobs without a GPU are left out. A part of a GPU counts as one.
 */
import { FileError, objects, rows, secondsOf } from './read.mjs';

/** Most GPUs of a container. */
const MOST_GPUS = 64;
/** Most jobs whose users are remembered. */
const MOST_JOBS = 5_000_000;

/**
 * @param {{ at: number, workspace: string, gpus: number, machines?: number, gpu: string, seconds: number }} job
 * @param {{ leftOut: number }} counts
 */
function* workOf({ at, workspace, gpus, machines = 1, gpu, seconds }, counts) {
  const each = Math.ceil(gpus / machines);
  if (each === 0 || each > MOST_GPUS || machines < 1) {
    counts.leftOut += 1;
    return;
  }
  const deployment = `${workspace}-${each}${gpu === 'any' ? '' : `-${gpu}`}`;
  yield {
    at,
    deploy: { deployment, workspace, gpu, gpus: each, one_task: true },
    task: { seconds: Math.round(seconds * 1000) / 1000, ...(machines > 1 ? { count: machines } : {}) },
  };
}

/** Helios: `cluster_log.csv`. https://github.com/S-Lab-System-Group/HeliosData */
export async function* helios({ file, gpu = 'any' }, counts) {
  for await (const row of rows(file)) {
    const job = {
      at: row.time('submit_time'),
      workspace: row.name('vc'),
      gpus: row.number('gpu_num'),
      machines: Math.max(1, row.number('node_num', 1)),
      seconds: row.number('duration'),
    };
    yield* workOf({ ...job, gpu }, counts);
  }
}

/** Philly: `cluster_job_log`, a JSON array. https://github.com/msr-fiddle/philly-traces */
export async function* philly({ file, gpu = 'any' }, counts) {
  for await (const { value, number } of objects(file)) {
    const { vc, submitted_time: submitted, attempts } = value;
    const at = secondsOf(String(submitted));
    if (typeof vc !== 'string' || vc === '' || at === undefined || !Array.isArray(attempts))
      throw new FileError(`${file} entry ${number} has no vc, submitted_time or attempts`);
    let seconds = 0;
    let machines;
    for (const { start_time: start, end_time: end, detail } of attempts) {
      const [from, to] = [secondsOf(String(start)), secondsOf(String(end))];
      // Some attempts have no times, and one that ran when the log was taken has no end.
      if (from === undefined || to === undefined || to < from) continue;
      seconds += to - from;
      if (Array.isArray(detail) && detail.length > 0) machines ??= detail;
    }
    if (machines === undefined) {
      counts.leftOut += 1;
      continue;
    }
    const gpus = machines.reduce((sum, { gpus: some }) => sum + (Array.isArray(some) ? some.length : 0), 0);
    yield* workOf({ at, workspace: vc.slice(0, 64), gpus, machines: machines.length, gpu, seconds }, counts);
  }
}

const PAI_TASK = [
  'job_name',
  'task_name',
  'inst_num',
  'status',
  'start_time',
  'end_time',
  'plan_cpu',
  'plan_mem',
  'plan_gpu',
  'gpu_type',
];
const PAI_JOB = ['job_name', 'inst_id', 'user', 'status', 'start_time', 'end_time'];

/** Alibaba 2020: `pai_task_table.csv` with `pai_job_table.csv`. https://github.com/alibaba/clusterdata */
export async function* alibaba2020({ file, jobs, gpu }, counts) {
  const known = new Map();
  for await (const row of rows(jobs, PAI_JOB)) {
    if (known.size >= MOST_JOBS) throw new FileError(`${jobs} has more than ${MOST_JOBS} jobs`);
    if (!row.isEmpty('start_time'))
      known.set(row.name('job_name'), { user: row.name('user'), at: row.number('start_time') });
  }
  for await (const row of rows(file, PAI_TASK)) {
    const job = known.get(row.name('job_name'));
    // A task that had not begun or ended has no times.
    if (job === undefined || row.isEmpty('start_time') || row.isEmpty('end_time')) {
      counts.leftOut += 1;
      continue;
    }
    const work = {
      at: job.at,
      workspace: job.user,
      gpus: Math.ceil(row.number('plan_gpu', 0) / 100),
      gpu: gpu ?? (row.isEmpty('gpu_type') ? 'any' : row.name('gpu_type')),
      seconds: Math.max(0, row.number('end_time') - row.number('start_time')),
    };
    for (const { task, ...rest } of workOf(work, counts))
      yield {
        ...rest,
        task: { ...task, count: Math.max(1, Math.min(1_000_000, Math.round(row.number('inst_num', 1)))) },
      };
  }
}

/** Alibaba 2023: `openb_pod_list_*.csv`. Users are not in it, so workspaces are the classes of service. */
export async function* alibaba2023({ file, gpu }, counts) {
  for await (const row of rows(file)) {
    if (row.isEmpty('deletion_time')) {
      counts.leftOut += 1;
      continue;
    }
    const at = row.number('creation_time');
    const begins = row.number('scheduled_time', at);
    const work = {
      at,
      workspace: row.name('qos'),
      gpus: row.number('num_gpu'),
      gpu: gpu ?? (row.isEmpty('gpu_spec') ? 'any' : row.name('gpu_spec')),
      seconds: Math.max(0, row.number('deletion_time') - begins),
    };
    yield* workOf(work, counts);
  }
}
