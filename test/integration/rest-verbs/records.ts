/** Verbs that read what there is: lists, series, apps, deployments, tasks, events, logs; and those of a deployment. */
import { expect } from 'vitest';
import { notBuiltRoutes } from '#scheduler/api/http/rest/not-built.ts';
import { NOBODY } from '../verbs-fixture.ts';
import type { Verb } from '../verbs-kit.ts';
import { READS_NOTHING } from './parts.ts';
import type { RestParts } from './parts.ts';

const HOUR_OF_METRICS = 'start=2030-01-01T00:00:00Z&end=2030-01-01T01:00:00Z&interval=1m';

export function recordVerbs(parts: RestParts): readonly Verb[] {
  const { platform, rest, ownId, aContainer, aDeployment, aTask, isActive, isListed } = parts;
  return [
    ...notBuiltRoutes.map(({ method, path }): Verb => ({
      name: `${method} ${path}`,
      line: (id) => `${method} ${path.replace('{ws}', id).replace(/\{\w+\}/, NOBODY)}`,
      make: ownId,
      ok: { code: 'not_implemented', message: expect.stringMatching(/ not built yet in this version$/) },
      unknown: { status: 401 },
      ...(method === 'GET' ? READS_NOTHING : {}),
    })),
    ...['app', 'container', 'ended-container', 'deployment', 'deployment-health', 'task', 'task-summary', 'logs'].map(
      (thing): Verb => ({
        name: `GET /${thing}/{ws}`,
        line: (id) => `GET /${thing}/${id}`,
        make: ownId,
        ok: { status: 200 },
        unknown: { status: 401 },
        malformed: thing === 'container' ? null : { line: `GET /${thing}/{ws}?limit=x` },
      }),
    ),
    {
      name: 'GET /metrics/{ws}/stub-timeseries',
      line: (id) => `GET /metrics/{ws}/stub-timeseries?stub_id=${id}&${HOUR_OF_METRICS}`,
      make: () => platform().stub(),
      ok: { scanned_records: 0, truncated: false, timeseries: { aggregation_buckets: [] } },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { line: 'GET /metrics/{ws}/stub-timeseries?stub_id=x' },
    },
    ...['workspace', 'pool'].map((kind): Verb => ({
      name: `GET /metrics/{ws}/${kind}-timeseries`,
      line: (id) => `GET /metrics/${id}/${kind}-timeseries?${HOUR_OF_METRICS}`,
      make: ownId,
      ok: { scanned_records: 0, truncated: false },
      unknown: { status: 401 },
      malformed: { line: `GET /metrics/{ws}/${kind}-timeseries?start=yesterday` },
    })),
    {
      name: 'GET /app/{ws}/latest',
      line: (id) => `GET /app/${id}/latest`,
      make: ownId,
      ok: { status: 200 },
      unknown: { status: 401 },
      malformed: { line: 'GET /app/{ws}/latest?cursor=x' },
    },
    {
      name: 'GET /app/{ws}/{id}',
      line: (id) => `GET /app/{ws}/${id}`,
      make: async () => {
        const deployment = await platform().call(rest(`GET /api/v1/deployment/{ws}/${await aDeployment()}`));
        return String(deployment.json['app_id']);
      },
      ok: { running_containers: 0, stub: null, deployment: expect.objectContaining({ version: 1 }) },
      unknown: { status: 404 },
      foreign: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'GET /deployment/{ws}/{id}',
      line: (id) => `GET /deployment/{ws}/${id}`,
      make: aDeployment,
      ok: { status: 200 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'GET /deployment/{ws}/flow/{id}',
      line: (id) => `GET /deployment/{ws}/flow/${id}`,
      make: aDeployment,
      ok: { concurrency: null, key: '', held: 0, limits: [], data: [] },
      unknown: { status: 404 },
      foreign: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'PATCH /deployment/{ws}/flow/{id}',
      line: (id) => `PATCH /deployment/{ws}/flow/${id}`,
      body: () => ({ paused: true, limit: 5 }),
      make: () => aDeployment({ stubType: 'taskqueue/deployment' }),
      ok: { status: 200, text: '' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { body: '{"limit": -1}', answer: { status: 422 } },
      done: async (id) =>
        (await platform().call(rest(`GET /api/v1/deployment/{ws}/flow/${id}`))).json['paused'] === true,
    },
    {
      name: 'GET /deployment/{id}/url',
      line: (id) => `GET /deployment/${id}/url`,
      make: aDeployment,
      ok: { url: expect.stringContaining('/v1') },
      unknown: { status: 404 },
      ...READS_NOTHING,
    },
    {
      name: 'GET /stub/{ws}/{id}',
      line: (id) => `GET /stub/{ws}/${id}`,
      make: () => platform().stub(),
      ok: { config: expect.stringContaining('"runtime"'), app: { name: expect.any(String) as string } },
      unknown: { status: 404 },
      foreign: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'GET /stub/{id}/url',
      line: (id) => `GET /stub/${id}/url`,
      make: () => platform().stub(),
      ok: { url: expect.stringMatching(/\/id\/[0-9a-f-]{36}$/) },
      unknown: { status: 404 },
      ...READS_NOTHING,
    },
    {
      name: 'POST /deployment/{ws}/stop/{id}',
      line: (id) => `POST /deployment/{ws}/stop/${id}`,
      make: aDeployment,
      ok: { status: 200, text: '' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      done: async (id) => !(await isActive(id)),
    },
    {
      name: 'POST /deployment/{ws}/start/{id}',
      line: (id) => `POST /deployment/{ws}/start/${id}`,
      make: aDeployment,
      ok: { status: 200, text: '' },
      unknown: { status: 404 },
      foreign: { status: 401 },
    },
    {
      name: 'POST /deployment/{ws}/rollback/{id}',
      line: (id) => `POST /deployment/{ws}/rollback/${id}`,
      make: aDeployment,
      ok: { status: 200, text: '' },
      unknown: { status: 404 },
      foreign: { status: 401 },
    },
    {
      name: 'DELETE /deployment/{ws}/{id}',
      line: (id) => `DELETE /deployment/{ws}/${id}`,
      make: aDeployment,
      ok: { status: 200, text: '' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      done: async (id) => !(await isListed(id)),
    },
    {
      name: 'GET /task/{ws}/{id}',
      line: (id) => `GET /task/{ws}/${id}`,
      make: aTask,
      ok: { status: 'PENDING' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'GET /task/{ws}/{taskId}/input',
      line: (id) => `GET /task/{ws}/${id}/input`,
      make: aTask,
      ok: { query: {} },
      unknown: { status: 404 },
      foreign: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'POST /task/{ws}/{taskId}/rerun',
      line: (id) => `POST /task/{ws}/${id}/rerun`,
      make: aTask,
      ok: { status: 201 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'GET /task/{ws}/{taskId}/subscribe',
      line: (id) => `GET /task/{ws}/${id}/subscribe`,
      make: async () => {
        const id = await aTask();
        await platform().gateway('POST /tasks/stop', { taskIds: [id] });
        return id;
      },
      ok: { status: 200 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'GET /events/{ws}/history',
      line: (id) => `GET /events/${id}/history`,
      make: ownId,
      ok: { truncated: false },
      unknown: { status: 401 },
      malformed: { line: 'GET /events/{ws}/history?limit=x' },
    },
    {
      name: 'GET /logs/{ws}/stream',
      line: (id) => `GET /logs/${id}/stream?wait=0&tail_offset=1`,
      make: ownId,
      ok: { status: 200 },
      unknown: { status: 401 },
      malformed: { line: 'GET /logs/{ws}/stream?seq_num=x' },
    },
    {
      name: 'GET /events/{ws}/stream',
      line: (id) => `GET /events/${id}/stream?wait=0&tail_offset=1`,
      make: ownId,
      ok: { status: 200 },
      unknown: { status: 401 },
      malformed: { line: 'GET /events/{ws}/stream?seq_num=x' },
    },
    {
      name: 'GET /search/{ws}',
      line: (id) => `GET /search/${id}?q=anything`,
      make: ownId,
      ok: { data: [] },
      unknown: { status: 401 },
      malformed: { line: 'GET /search/{ws}?q=' },
    },
    ...[
      ['task-stats', 'start=yesterday'],
      ['overview', 'range=1d'],
    ].map(([thing, bad]): Verb => ({
      name: `GET /${thing}/{ws}`,
      line: (id) => `GET /${thing}/${id}`,
      make: ownId,
      ok: { status: 200 },
      unknown: { status: 401 },
      malformed: { line: `GET /${thing}/{ws}?${bad}` },
    })),
    {
      name: 'GET /live/{ws}',
      line: (id) => `GET /live/${id}?topics=overview&wait=0`,
      make: ownId,
      ok: { status: 200 },
      unknown: { status: 401 },
      malformed: { line: 'GET /live/{ws}?topics=overview&wait=soon' },
    },
    ...(['task', 'container', 'deployment'] as const).map((kind): Verb => ({
      name: `GET /explain/{ws}/{id} of a ${kind}`,
      line: (id) => `GET /explain/{ws}/${id}`,
      make: { task: aTask, container: aContainer, deployment: aDeployment }[kind],
      ok: { kind, leader_answered: true },
      unknown: { status: 404 },
      foreign: { status: 401 },
      ...READS_NOTHING,
    })),
  ];
}
