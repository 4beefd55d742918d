// Lines of a trace: what is read, and what is refused with the name of its field.
import { describe, expect, test } from 'vitest';
import { readTraceLine } from '#scheduler/control/simulator/trace.ts';

describe('a line of a trace', () => {
  test('has defaults for what it does not say', () => {
    expect(readTraceLine({ kind: 'machine', machine: 7, gpu: 'H100', gpus: 8 })).toEqual({
      kind: 'machine',
      atMs: 0,
      machine: '7',
      count: 1,
      pool: 'default',
      gpu: 'H100',
      gpus: 8,
      gpuMemoryBytes: 0,
      cpuMillicores: 128_000,
      memoryBytes: 512 * 1024 ** 3,
    });
    expect(readTraceLine({ kind: 'deploy', deployment: 'd', workspace: 'w', gpu: 'H100|A100:>=40GiB' })).toMatchObject({
      gpu: ['H100', 'A100:>=40GiB'],
      gpus: 1,
      startSeconds: 0,
      runSeconds: undefined,
      oneTask: false,
      maxContainers: 100_000,
      keepWarmMs: 60_000,
    });
    expect(readTraceLine({ t: 1.2345, kind: 'task', deployment: 'd', seconds: 0.5 })).toEqual({
      kind: 'task',
      atMs: 1235,
      deployment: 'd',
      runMs: 500,
      count: 1,
      overMs: 0,
    });
    expect(
      readTraceLine({ t: 1, kind: 'limit', workspace: 'w', weight: 2, guaranteed: { H100: 2, cpu: 4 } }),
    ).toMatchObject({ share: { weight: 2, guaranteed: { H100: 2, cpu: 4 }, limits: {} } });
    expect(
      readTraceLine({ kind: 'deploy', deployment: 'd', workspace: 'w', start_seconds: { 95: 9, 50: 2 } }),
    ).toMatchObject({
      startSeconds: [
        [0.5, 2],
        [0.95, 9],
      ],
    });
  });

  test.each([
    [[], 'is no JSON object'],
    [{ t: 1 }, 'kind must be one of machine, gone, deploy, limit, task, end, and is not there'],
    [{ t: 1, kind: 'toString' }, 'kind must be one of'],
    [{ kind: 'task', deployment: 'd' }, 't must be a number'],
    [{ t: -1, kind: 'end' }, 't must be a number from 0'],
    [{ t: '1', kind: 'end' }, 't must be a number from 0 to 315360000, and is "1"'],
    [{ t: 1, kind: 'task', deployment: 'd', second: 3 }, 'second is no field of a task line'],
    [{ t: 1, kind: 'task', deployment: '', seconds: 3 }, 'deployment must be a text of 1 to 128 characters'],
    [{ t: 1, kind: 'task', deployment: 'd', seconds: null }, 'seconds must be a number'],
    [{ t: 1, kind: 'task', deployment: 'd', count: 1.5 }, 'count must be a whole number'],
    [{ t: 1, kind: 'task', deployment: 'd', count: 1e7 }, 'count must be a number from 1 to 1000000'],
    [{ kind: 'machine', machine: 'm', gpus: 8 }, 'gpu must be the model'],
    [{ kind: 'machine', machine: 'm', gpu: 'H100:>=40GiB' }, 'gpu must be a GPU model without conditions'],
    [{ kind: 'machine', machine: 'm', gpu: 'H100', gpus: 65 }, 'gpus must be a number from 0 to 64'],
    [{ kind: 'deploy', deployment: 'd', workspace: 'w', gpus: 2 }, 'gpu must be a model or any'],
    [{ kind: 'deploy', deployment: 'd', workspace: 'w', gpu: '!' }, 'gpu: "!" does not begin with a model'],
    [{ kind: 'deploy', deployment: 'd', workspace: 'w', priority: 'urgent' }, 'priority must be one of high'],
    [{ kind: 'deploy', deployment: 'd', workspace: 'w', one_task: 1 }, 'one_task must be true or false'],
    [{ kind: 'deploy', deployment: 'd', workspace: 'w', start_seconds: { 50: 3, 95: 2 } }, 'start_seconds must be'],
    [{ kind: 'deploy', deployment: 'd', workspace: 'w', run_seconds: { 101: 3 } }, 'run_seconds must be'],
    [{ kind: 'deploy', deployment: 'd', workspace: 'w', run_seconds: {} }, 'run_seconds must be from 1 to 32'],
    [
      { kind: 'deploy', deployment: 'd', workspace: 'w', min_containers: 5, max_containers: 3 },
      'max_containers must be a number from 5',
    ],
    [{ kind: 'limit', workspace: 'w', weight: 0 }, 'weight must be a number from 0.01'],
    [{ kind: 'limit', workspace: 'w', limits: { H100: -1 } }, 'limits must be numbers by market'],
    [{ kind: 'limit', workspace: 'w', guaranteed: { H100: 4 }, limits: { H100: 2 } }, 'limits must be at least'],
  ])('%j is refused: %s', (line, text) => {
    expect(() => readTraceLine(line)).toThrow(text);
  });
});
