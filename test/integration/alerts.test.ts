// Alerts that the scheduler knows by itself, on a real scheduler: of GPUs and no others; for the administrator; by the
// names of the rules that Prometheus has.
import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { AlertList } from '#shared/api/rest/alerts.ts';
import { runCommand } from '../helpers/command-line.ts';
import { waitFor } from '../helpers/programs.ts';
import { SimulatedAgent } from '../helpers/simulated-agent.ts';
import type { Platform } from './verbs-fixture.ts';
import { aPlatform } from './verbs-fixture.ts';

const ROOT = join(import.meta.dirname, '../..');
let platform: Platform;
let agent: SimulatedAgent;

beforeAll(async () => {
  platform = await aPlatform({}, 'embedded');
  const made = await platform.gateway('POST /machines', { poolName: 'gpus' }, { token: platform.admin.token });
  agent = new SimulatedAgent({
    addresses: () => [platform.agentAddress],
    joinToken: String(made.json['agentUpstreamToken']),
    gpus: [
      { uuid: 'GPU-hot', index: 0, model: 'H100', memoryBytes: 8e10, state: 'healthy' },
      {
        uuid: 'GPU-out',
        index: 1,
        model: 'H100',
        memoryBytes: 8e10,
        state: 'lost',
        unhealthy: true,
        why: 'it is gone',
      },
      { uuid: 'GPU-kept', index: 2, model: 'H100', memoryBytes: 8e10, state: 'excluded', unhealthy: true },
    ],
  });
  await agent.start();
});
afterAll(async () => {
  await agent.stop();
  await platform.stop();
});

const alerts = async (token = platform.admin.token): Promise<AlertList> =>
  (await platform.call('GET /api/v1/alerts', undefined, { token })).json as unknown as AlertList;

test('GPUs that are out or hot are told with the step that helps, and excluded ones are not', async () => {
  agent.sampleDevices([{ uuid: 'GPU-hot', temperatureCelsius: 91 }]);
  const { data, total } = await waitFor(async () => {
    const seen = await alerts();
    return seen.total === 2 ? seen : undefined;
  }, 'both are told');
  expect(total).toBe(data.length);
  expect(data).toContainEqual({
    rule: 'LongshoreGpuOut',
    severity: 'warning',
    subject: { type: 'gpu', id: 'GPU-out', name: expect.stringMatching(/\/1$/) },
    text: 'GPU GPU-out is lost: it is gone',
    step: expect.stringContaining(`longshore worker drain ${agent.machineId}`),
    since: null,
  });
  expect(data).toContainEqual(expect.objectContaining({ rule: 'LongshoreGpuHot', text: 'GPU GPU-hot has 91 degrees' }));
});

test('they are for the administrator', async () => {
  expect((await platform.call('GET /api/v1/alerts')).status).toBe(401);
});

test('each has the name of a rule that Prometheus has, too', () => {
  const source = readFileSync(join(ROOT, 'scheduler/api/explain/alerts.ts'), 'utf8');
  const rules = readFileSync(join(ROOT, 'deploy/prometheus/alerts.yml'), 'utf8');
  const used = [...source.matchAll(/'(Longshore\w+)'/g)].map(([, name]) => name ?? '');
  expect(used.length).toBeGreaterThan(10);
  expect(used.filter((name) => !rules.includes(`alert: ${name}\n`))).toEqual([]);
});

test('`longshore alerts` shows them', async () => {
  const env = {
    LONGSHORE_CONTEXT_FILE: join(tmpdir(), 'longshore-no-contexts.json'),
    LONGSHORE_URL: `http://${platform.address}`,
    LONGSHORE_TOKEN: platform.admin.token,
  };
  const { code, stdout, stderr } = await runCommand(['alerts'], env);
  expect([code, stdout]).toEqual([0, expect.stringContaining('LongshoreGpuOut')]);
  expect(stderr).toContain('next: drain its machine');
  const other = await runCommand(['alerts'], { ...env, LONGSHORE_TOKEN: platform.own.token });
  expect(other.code).not.toBe(0);
});
