/** Operations of deployments and tasks. */
import { expect } from 'vitest';
import type { Platform } from '../verbs-fixture.ts';
import { done, refusedWith } from '../verbs-kit.ts';
import type { Kit } from '../verbs-kit.ts';
import { UNAUTHORIZED } from './row.ts';
import type { Failure, GatewayVerb } from './row.ts';

const DEPLOYMENT =
  'id name active stubId stubType stubName version workspaceId workspaceName createdAt updatedAt appId';
const TASK = 'id status containerId startedAt endedAt stubId stubName workspaceId workspaceName createdAt updatedAt';
const NO_DEPLOYMENT = refusedWith('Deployment not found');
const UNSCALED = 'This type of deployment cannot be scaled directly.';

export function deploymentVerbs(platform: () => Platform, kit: Kit): readonly GatewayVerb[] {
  const { aTask, aStartedTask, statusOf } = kit;
  const deleted = async (): Promise<string> => {
    const id = await kit.aDeployment();
    await platform().gateway(`DELETE /deployments/${id}`);
    return id;
  };
  const gone: Failure = { make: deleted, answer: NO_DEPLOYMENT };
  const ended = (status: string) => async (): Promise<string> => {
    const taskId = await aStartedTask();
    const end = await platform().gateway('POST /tasks/end', { taskId, taskStatus: status });
    expect(end.json).toEqual({ ok: true });
    return taskId;
  };
  return [
    {
      name: 'ListDeployments',
      line: () => 'GET /deployments?limit=3',
      fields: 'ok errMsg deployments',
      records: { deployments: DEPLOYMENT },
      ok: done,
      malformed: { line: 'GET /deployments?limit=x' },
      failures: {
        'a limit below zero': { line: () => 'GET /deployments?limit=-1', answer: { code: 3, details: [] } },
        'filters that are none of the three': {
          line: () => 'GET /deployments?filters=x',
          answer: { code: 3, details: [] },
        },
      },
    },
    {
      name: 'StopDeployment',
      line: (id) => `POST /deployments/${id}/stop`,
      make: () => kit.aDeployment(),
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      ok: done,
      unknown: NO_DEPLOYMENT,
      done: async (id) => !(await kit.isActive(id)),
      failures: { deleted: gone },
    },
    {
      name: 'StartDeployment',
      line: (id) => `POST /deployments/${id}/start`,
      make: async () => {
        const id = await kit.aDeployment();
        await platform().gateway(`POST /deployments/${id}/stop`);
        return id;
      },
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      ok: done,
      unknown: NO_DEPLOYMENT,
      done: kit.isActive,
      failures: { deleted: gone },
    },
    {
      name: 'ScaleDeployment',
      line: (id) => `POST /deployments/${id}/scale`,
      body: () => ({ containers: 1 }),
      make: () => kit.aDeployment(),
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      ok: done,
      unknown: NO_DEPLOYMENT,
      malformed: { body: '{"containers": -1}' },
      failures: {
        deleted: gone,
        'too many': { body: () => ({ containers: 101 }), answer: refusedWith('replicas must be 100 or less') },
        'no body': { body: () => '', answer: done },
        'a function': {
          make: () => kit.aDeployment({ stubType: 'function/deployment' }),
          answer: refusedWith(UNSCALED),
        },
        'a schedule': {
          make: () => kit.aDeployment({ stubType: 'schedule/deployment', extra: '{"when": "@yearly"}' }),
          answer: refusedWith(UNSCALED),
        },
      },
    },
    {
      name: 'DeleteDeployment',
      line: (id) => `DELETE /deployments/${id}`,
      make: () => kit.aDeployment(),
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      ok: done,
      unknown: NO_DEPLOYMENT,
      done: async (id) => !(await kit.isListed(id)),
      failures: { deleted: gone },
    },
    {
      name: 'ListTasks',
      container: { ok: true, errMsg: '', tasks: [], total: 0 },
      line: () => 'GET /tasks?limit=3',
      make: aTask,
      fields: 'ok errMsg tasks total',
      records: { tasks: TASK },
      ok: done,
      malformed: { line: 'GET /tasks?limit=x' },
      failures: {
        'a limit below zero': { line: () => 'GET /tasks?limit=-1', answer: { code: 3, details: [] } },
        'filters that are none of the three': {
          line: () => 'GET /tasks?filters=%7B',
          answer: { code: 3, details: [] },
        },
      },
    },
    {
      name: 'StartTask',
      restricted: { ok: false },
      // The task is of another stub.
      container: { ok: false },
      line: () => 'POST /tasks/start',
      body: (taskId) => ({ taskId, containerId: '' }),
      make: () => aTask(),
      fields: 'ok',
      ok: { ok: true },
      unknown: { ok: false },
      malformed: { body: '{"taskId": 7}' },
      done: async (id) => (await statusOf(id)) === 'RUNNING',
      failures: {
        'one that is over': { make: ended('COMPLETE'), answer: { ok: false } },
        'one that another container has': {
          make: () => aStartedTask({}, 'mine'),
          body: (taskId) => ({ taskId, containerId: 'other' }),
          answer: { ok: false },
        },
      },
    },
    {
      name: 'EndTask',
      restricted: { ok: false },
      container: { ok: false },
      line: () => 'POST /tasks/end',
      body: (taskId) => ({
        taskId,
        taskStatus: 'COMPLETE',
        taskDuration: 0.5,
        containerId: '',
        containerHostname: 'host',
        keepWarmSeconds: 3,
        result: 'eyJhIjoxfQ==',
      }),
      make: () => aStartedTask(),
      fields: 'ok',
      ok: { ok: true },
      unknown: { ok: false },
      malformed: { body: '{"result": "!"}' },
      done: async (id) => (await statusOf(id)) === 'COMPLETE',
      failures: {
        'a status that is none': {
          body: (taskId) => ({ taskId, taskStatus: 'SOMEHOW' }),
          answer: { ok: false },
        },
        'another container': {
          make: () => aStartedTask({}, 'mine'),
          body: (taskId) => ({ taskId, taskStatus: 'COMPLETE', containerId: 'other' }),
          answer: { ok: false },
        },
        'one that nobody started': { make: aTask, answer: { ok: false } },
        'over, and not COMPLETE': {
          make: ended('ERROR'),
          body: (taskId) => ({ taskId, taskStatus: 'ERROR' }),
          answer: { ok: true },
        },
        'over, and COMPLETE after all': { make: ended('ERROR'), answer: { ok: true } },
      },
    },
    {
      name: 'StopTasks',
      line: () => 'POST /tasks/stop',
      body: (taskId) => ({ taskIds: [taskId] }),
      make: () => aTask(),
      fields: 'ok errMsg',
      ok: done,
      unknown: refusedWith('Task not found'),
      malformed: { body: '{"taskIds": "all"}' },
      done: async (id) => (await statusOf(id)) === 'CANCELLED',
      failures: {
        'one that is over': { make: ended('COMPLETE'), answer: done },
        none: { body: () => ({ taskIds: [] }), answer: done },
      },
    },
  ];
}
