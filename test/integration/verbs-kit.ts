/** Parts for tables of verbs: the call and the answer of a verb, and makers of the objects that verbs are about. */
import { expect } from 'vitest';
import { waitFor } from '../helpers/programs.ts';
import type { Answer, Json, Platform } from './verbs-fixture.ts';

/** Required content of an answer: part of its JSON, or its status and text. */
export type Expected = Json | { readonly status: number; readonly text?: string };

export interface Verb {
  readonly name: string;
  /** The request for an id; `{ws}` is the own workspace. */
  readonly line: (id: string) => string;
  readonly body?: (id: string) => unknown;
  /** Makes what the verb is about in the own workspace. */
  readonly make?: () => Promise<string>;
  readonly ok: Expected;
  /** Answer for an unknown id; absent: the verb's subject has no id. */
  readonly unknown?: Expected;
  /** Answer for a malformed id; absent: as for an unknown one. */
  readonly noId?: Expected;
  /** Answer to another workspace's caller with an id of ours; absent: as for an unknown id. */
  readonly foreign?: Expected;
  /** Answer to a caller with no token, or a bad one; absent: the surface's own. */
  readonly refused?: Expected;
  /** Absent: a body that is no JSON. null: the verb reads nothing. */
  readonly malformed?: { readonly line?: string; readonly body?: string; readonly answer?: Expected } | null;
  /** True: the caller must be the administrator. */
  readonly byAdmin?: boolean;
  /** True once the verb was carried out, false before, even after refused calls. */
  readonly done?: (id: string) => Promise<boolean>;
}

export function meets(answer: Answer, expected: Expected): void {
  if (typeof expected['status'] !== 'number') {
    expect(answer.json).toMatchObject(expected);
    return;
  }
  expect([answer.status, answer.text]).toEqual([expected['status'], expected['text'] ?? answer.text]);
}

export const refusedWith = (errMsg: unknown): Json => ({ ok: false, errMsg });
export const done: Json = { ok: true, errMsg: '' };

export type Kit = ReturnType<typeof kitOf>;

/** Makers and readers on a platform that starts later. */
export function kitOf(platform: () => Platform) {
  let counter = 0;
  const unique = (name: string): string => `${name}-${(counter += 1)}`;
  const list = async (path: string, field: string): Promise<Json[]> =>
    ((await platform().gateway(`GET ${path}`)).json[field] ?? []) as Json[];
  const row = async (path: string, field: string, key: string, id: unknown): Promise<Json | undefined> =>
    (await list(path, field)).find((one) => one[key] === id);
  const aQueue = async (said: Json = {}): Promise<{ readonly name: string; readonly id: string }> => {
    const name = unique('queue');
    return { name, id: (await platform().deploy(name, { stubType: 'taskqueue/deployment', ...said })).id };
  };
  const aTask = async (said: Json = {}): Promise<string> =>
    String((await platform().call(`POST /taskqueue/${(await aQueue(said)).name}`, {})).json['task_id']);
  return {
    unique,
    list,
    aDeployment: async (said: Json = {}): Promise<string> => (await platform().deploy(unique('app'), said)).id,
    isActive: async (id: string): Promise<boolean> =>
      (await row('/deployments', 'deployments', 'id', id))?.['active'] === true,
    isListed: async (id: string): Promise<boolean> =>
      (await row('/deployments', 'deployments', 'id', id)) !== undefined,
    aQueue,
    aTask,
    aStartedTask: async (said: Json = {}, containerId = ''): Promise<string> => {
      const taskId = await aTask(said);
      expect((await platform().gateway('POST /tasks/start', { taskId, containerId })).json).toEqual({ ok: true });
      return taskId;
    },
    statusOf: async (taskId: string): Promise<unknown> =>
      (await list(`/tasks?filters=task-id=${taskId}`, 'tasks'))[0]?.['status'],
    /** PENDING, on no machine, and wanted for as long as its deployment is there. */
    aContainer: async (): Promise<string> => {
      const autoscaler = { type: 'queue_depth', minContainers: 1, maxContainers: 1, tasksPerContainer: 1 };
      const { stubId } = await platform().deploy(unique('wanted'), { autoscaler, forceCreate: true });
      const wanted = await waitFor(
        () => row('/containers', 'containers', 'stubId', stubId),
        'the deployment has its container',
      );
      return String(wanted['containerId']);
    },
    containerIs: (id: string) => row('/containers', 'containers', 'containerId', id),
    aMachine: async (): Promise<string> => {
      const made = await platform().gateway('POST /machines', { poolName: 'mine' });
      return String((made.json['machine'] as Json)['id']);
    },
    machineIs: (id: string) => row('/machines', 'machines', 'id', id),
    aToken: async (query = ''): Promise<Json> =>
      (await platform().gateway(`POST /tokens${query}`)).json['token'] as Json,
    tokenIs: (id: string) => row('/tokens', 'tokens', 'tokenId', id),
    /** Announced; with content: uploaded. */
    anObject: async (content?: string): Promise<{ readonly hash: string; readonly objectId: string }> => {
      const hash = unique('hash');
      const { json } = await platform().gateway('POST /objects', { hash, size: content?.length ?? 1, overwrite: true });
      if (content !== undefined) {
        const { pathname, search } = new URL(String(json['presignedUrl']));
        expect((await platform().call(`PUT ${pathname}${search}`, content, { token: '' })).status).toBe(200);
      }
      return { hash, objectId: String(json['objectId']) };
    },
    aVolume: async (): Promise<string> =>
      String(((await platform().gateway('POST /volumes', { name: unique('v') })).json['volume'] as Json)['id']),
  };
}
