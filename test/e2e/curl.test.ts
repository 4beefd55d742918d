// Nothing but curl between a person and an answer, step by step, and the messages for steps in the wrong order. The
// README's own block runs as it stands in up.test.ts.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { test, zipOf } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

interface Said {
  readonly status: number;
  readonly headers: string;
  readonly json: Readonly<Record<string, unknown>>;
}

/** Calls with curl, with the token. */
async function curl(platform: Platform, path: string, ...args: readonly string[]): Promise<Said> {
  const url = path.startsWith('/') ? `${platform.url}${path}` : path;
  const own = path.startsWith('/') ? ['-H', `Authorization: Bearer ${platform.token}`] : [];
  const child = spawn(
    'curl',
    ['-sS', '-i', '--max-time', '60', '--noproxy', '*', url, ...own, '-H', 'Expect:', ...args],
    {
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => (text += part));
  child.stderr.setEncoding('utf8').on('data', (part: string) => (text += part));
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`curl ${path} ended with ${code}: ${text}`);
  const [headers = '', body = ''] = text.split('\r\n\r\n');
  return {
    status: Number(/^HTTP\/[\d.]+ (\d+)/.exec(headers)?.[1] ?? 0),
    headers,
    json: body === '' ? {} : (JSON.parse(body) as Record<string, unknown>),
  };
}

const sends = (value: unknown): readonly string[] => ['-d', JSON.stringify(value)];
const GATEWAY = '/api/v1/gateway';
const APP = Buffer.from(
  'def greet(name="world"):\n    print("greeting", name)\n    return {"greeting": f"Hello, {name}!"}\n',
);

describe('with curl alone', () => {
  test('a zip becomes an answer, a task and a log line', async ({ platform }) => {
    const archive = await zipOf({ 'app.py': APP });
    const file = join(platform.directory, 'app.zip');
    writeFileSync(file, archive);
    const hash = createHash('sha256').update(archive).digest('hex');

    expect((await curl(platform, `${GATEWAY}/objects/${hash}`)).json).toMatchObject({ ok: true, exists: false });
    const size = archive.byteLength;
    const object = await curl(platform, `${GATEWAY}/objects`, ...sends({ hash, size, overwrite: false }));
    expect(object).toMatchObject({ status: 200, json: { ok: true, errorMsg: '' } });
    const put = await curl(platform, String(object.json['presignedUrl']), '-X', 'PUT', '--data-binary', `@${file}`);
    expect(put.status).toBe(200);
    const { objectId } = object.json;
    expect((await curl(platform, `${GATEWAY}/objects/${hash}`)).json).toMatchObject({ exists: true, objectId });

    const recipe = { objectId, stubType: 'endpoint/deployment', name: 'greet', handler: 'app:greet', cpu: 500 };
    const stub = await curl(platform, `${GATEWAY}/stubs`, ...sends({ ...recipe, memory: '128', keepWarmSeconds: 5 }));
    expect(stub).toMatchObject({ status: 200, json: { ok: true, errMsg: '' } });
    const { stubId } = stub.json;
    const deployed = await curl(platform, `${GATEWAY}/stubs/deploy`, ...sends({ stubId, name: 'greet' }));
    expect(deployed.json).toMatchObject({ ok: true, version: 1, invokeUrl: `${platform.url}/endpoint/greet/v1` });
    const { deploymentId } = deployed.json;
    const address = await curl(platform, `${GATEWAY}/stubs/${String(stubId)}/url?deploymentId=${String(deploymentId)}`);
    expect(address.json).toMatchObject({ ok: true, url: deployed.json['invokeUrl'] });

    const answer = await curl(platform, '/endpoint/greet', ...sends({ name: 'Ada' }));
    expect(answer).toMatchObject({ status: 200, json: { greeting: 'Hello, Ada!' } });
    const taskId = /^x-task-id: (\S+)/im.exec(answer.headers)?.[1] ?? '';
    const task = await curl(platform, `/api/v1/task/${platform.workspaceId}/${taskId}`);
    expect(task).toMatchObject({ status: 200, json: { status: 'COMPLETE', result: { greeting: 'Hello, Ada!' } } });
    const tasks = await waitFor(async () => {
      const listed = (await curl(platform, `${GATEWAY}/tasks`)).json['tasks'] as { id: string; status: string }[];
      return listed.some((one) => one.status === 'COMPLETE') && listed;
    }, 'ListTasks has it');
    expect(tasks).toMatchObject([{ id: taskId, status: 'COMPLETE', stubId }]);
    expect(await platform.logSays(`task_id=${taskId}`, 'greeting')).toBe('greeting Ada');
  });

  test('what a generator yields is read while it runs, and what it raises comes last', async ({ platform }) => {
    const app = await platform.deploy({ app: 'streaming.py', handler: 'either', name: 'streaming', workers: 2 });
    const headers = { authorization: `Bearer ${platform.token}` };
    const body = JSON.stringify({ wait: true });
    const answer = await fetch(app.url, { method: 'POST', headers, body, signal: AbortSignal.timeout(60_000) });
    expect(answer.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    let text = '';
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    while (!text.endsWith('\n\n')) text += (await reader?.read())?.value ?? '';
    expect(text).toBe('data: {"word":"first"}\n\n');
    // The handler goes on once this call has been served, so the first word was not kept back.
    expect(await platform.invoke(app, { open_gate: true })).toMatchObject({ status: 200 });
    for (let part = await reader?.read(); part?.done === false; part = await reader?.read()) text += part.value;
    expect(text).toBe('data: {"word":"first"}\n\ndata: {"data":"second"}\n\n');

    const failed = await platform.invoke(app, { fail: true });
    expect(failed.text).toBe('data: {"word":"first"}\n\nevent: error\ndata: {"error": "KeyError: \'second\'"}\n\n');
    await platform.taskIs(failed.taskId, 'ERROR');
  });

  test('steps in the wrong order are refused with what is missing', async ({ platform }) => {
    const nowhere = '00000000-0000-4000-8000-000000000000';
    const recipe = { stubType: 'endpoint/deployment', name: 'late', handler: 'app:greet', cpu: 500, memory: 128 };
    const noObject = await curl(platform, `${GATEWAY}/stubs`, ...sends({ ...recipe, objectId: nowhere }));
    expect(noObject).toMatchObject({ status: 200, json: { ok: false } });
    expect(String(noObject.json['errMsg'])).toMatch(/object/i);

    const archive = await zipOf({ 'late.py': APP });
    const hash = createHash('sha256').update(archive).digest('hex');
    const announced = { hash, size: archive.byteLength, overwrite: false };
    const object = await curl(platform, `${GATEWAY}/objects`, ...sends(announced));
    const { objectId, presignedUrl } = object.json;
    const early = await curl(platform, `${GATEWAY}/stubs`, ...sends({ ...recipe, objectId }));
    expect(early).toMatchObject({ status: 200, json: { ok: false } });
    expect(String(early.json['errMsg'])).toMatch(/upload/i);

    const noStub = await curl(platform, `${GATEWAY}/stubs/deploy`, ...sends({ stubId: nowhere, name: 'late' }));
    expect(noStub.json['ok']).not.toBe(true);
    const file = join(platform.directory, 'late.zip');
    writeFileSync(file, archive);
    const upload = ['-X', 'PUT', '--data-binary', `@${file}`];
    const forged = String(presignedUrl).replace(/.$/, (last) => (last === '0' ? '1' : '0'));
    expect(await curl(platform, forged, ...upload)).toMatchObject({ status: 403, json: { code: 'upload_refused' } });
    expect((await curl(platform, String(presignedUrl), ...upload)).status).toBe(200);
    const inTime = await curl(platform, `${GATEWAY}/stubs`, ...sends({ ...recipe, objectId }));
    expect(inTime).toMatchObject({ status: 200, json: { ok: true } });
    expect((await curl(platform, '/endpoint/late', ...sends({}))).json).toEqual({ message: 'Invalid deployment' });
  });
});
