// The health of endpoints and web applications, which published clients wait for after a deploy.
import { afterEach, describe, expect, test } from 'vitest';
import type { Target } from '../../../scheduler/domain/stub-config.ts';
import { GET, OK, PATH, cleanUp, connected, serve, turned } from '../../helpers/played-streams.ts';
import { OWNER, STUB, aTarget, call, playCalls, played, tasks } from './invoke-fixture.ts';

const scaled = (minContainers: number): Pick<Target, 'scale'> => ({ scale: { minContainers, maxContainers: 1 } });

describe('an endpoint', () => {
  playCalls();
  const ask = (path: string, token = 'w') => call(path, '', token, 'GET');

  test.each([
    '/endpoint/hello/v1/health',
    '/endpoint/hello/latest/health',
    '/endpoint/hello/health',
    `/endpoint/id/${STUB}/health`,
  ])('%s names the version, and starts nothing', async (path) => {
    played.target = { ...aTarget(), ...scaled(0) };
    const answer = await ask(path);
    expect([answer.status, answer.text, answer.headers['x-beta9-stub-id']]).toEqual([200, '{"status":"ok"}', STUB]);
    expect(tasks.calls).toEqual([]);
  });

  test('the health of a public one needs no token, and a private one needs a good one', async () => {
    played.target = { ...aTarget({ authorized: false }), ...scaled(0) };
    expect((await ask(`/endpoint/public/${STUB}/health`, '')).status).toBe(200);
    played.target = { ...aTarget(), ...scaled(0) };
    for (const token of ['', 'bad']) expect((await ask('/endpoint/hello/v1/health', token)).status).toBe(401);
    expect((await ask(`/endpoint/id/${STUB}/health`, 'other')).status).toBe(401);
    expect((await ask(`/endpoint/public/${STUB}/health`)).status).not.toBe(200);
    expect((await ask('/endpoint/hello/v2/health')).headers['x-beta9-stub-id']).toBeUndefined();
  });

  test('one that keeps containers is healthy once a container runs', async () => {
    played.target = { ...aTarget(), ...scaled(1) };
    const starting = await ask('/endpoint/hello/v1/health');
    expect([starting.status, starting.headers['x-beta9-stub-id']]).toEqual([503, STUB]);
    played.isServed = true;
    expect((await ask('/endpoint/hello/v1/health')).status).toBe(200);
  });

  test('a stopped one, other kinds and other methods have none', async () => {
    played.target = { ...aTarget({ active: false }), ...scaled(0) };
    expect((await ask('/endpoint/hello/v1/health')).status).not.toBe(200);
    played.target = { ...aTarget(), ...scaled(0) };
    expect((await call('/endpoint/hello/v1/health')).status).not.toBe(200);
    played.target = { ...aTarget({ kind: 'function' }), ...scaled(0) };
    expect((await call('/health', '', 'w', 'GET', `${STUB}.localhost`)).status).toBe(404);
  });

  test('it is asked by host, too', async () => {
    played.target = { ...aTarget(), ...scaled(0) };
    const answer = await call('/health', '', 'w', 'GET', 'hello-1a2b3c4d5e6f7081-v1.localhost');
    expect([answer.status, answer.headers['x-beta9-stub-id']]).toEqual([200, STUB]);
    expect(tasks.calls).toEqual([]);
  });

  test('a public endpoint whose name is health is called by its path', async () => {
    played.target = aTarget({ authorized: false });
    played.name = 'health';
    const answer = await call(`/endpoint/public/${OWNER}/health`, '', '', 'GET');
    expect([answer.status, answer.text, answer.headers['x-beta9-stub-id']]).toEqual([200, '{"ok":true}', undefined]);
    expect(tasks.calls).toHaveLength(1);
  });
});

describe('a web application', () => {
  afterEach(cleanUp);
  const HEALTH = GET.replace(`${PATH}/ `, `${PATH}/health `);
  const stubId = PATH.split('/').at(-1);

  test('without a container the platform answers, and starts none', async () => {
    const { address, tasks: calls } = await serve(undefined, undefined, scaled(0), false);
    const answer = await fetch(`http://${address}${PATH}/health`);
    expect([answer.status, await answer.text(), answer.headers.get('x-beta9-stub-id')]).toEqual([
      200,
      '{"status":"ok"}',
      stubId,
    ]);
    expect(calls).toEqual([]);
    const kept = await serve(undefined, undefined, scaled(1), false);
    expect((await fetch(`http://${kept.address}${PATH}/health`)).status).toBe(503);
  });

  test('with a container its own answer goes out, and names the version', async () => {
    const { address, task } = await serve(undefined, undefined, scaled(0), true);
    const { socket, text } = connected(address);
    socket.write(HEALTH);
    const one = await task(1);
    one.begin();
    one.send('response', {}, { status: 503, headers: [] });
    one.send('data', {}, 'loading');
    one.send('end');
    await turned(() => text().includes('loading'));
    expect(text()).toContain('HTTP/1.1 503');
    expect(text().toLowerCase()).toContain(`x-beta9-stub-id: ${stubId}`);
  });

  test('an application without such a path is healthy; its 404 for other paths stays', async () => {
    const { address, task } = await serve(undefined, undefined, scaled(0), true);
    const { socket, text } = connected(address);
    socket.write(HEALTH);
    const one = await task(1);
    one.begin();
    one.send('response', {}, { status: 404, headers: [['content-length', '9']] });
    one.send('data', {}, 'not found');
    one.send('end');
    await turned(() => text().includes('{"status":"ok"}'));
    expect(text()).toContain('HTTP/1.1 200');
    expect(text()).not.toContain('not found');
    // The connection goes on.
    socket.write(GET.replace(`${PATH}/ `, `${PATH}/other `));
    const other = await task(2);
    other.begin();
    other.send('response', {}, { ...OK, status: 404 });
    other.send('end');
    await turned(() => text().includes('HTTP/1.1 404'));
  });
});
