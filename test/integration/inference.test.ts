// The /v1 surface as OpenAI clients meet it: the catalog, and requests that are refused before a model is asked.
import { expect } from 'vitest';
import { jsonOf } from '../helpers/platform.ts';
import { CHAT, HELLO, bearer, errorIn, test } from './inference-fixture.ts';
import type { Json } from './inference-fixture.ts';

test('the catalog is open for public models, and a token adds those of its workspace', async ({ world }) => {
  const open = await world.get('/models', null);
  expect(open.headers.get('cache-control')).toBe('public, max-age=60');
  const shown = (await open.json()) as { data: Json[] };
  expect(shown.data.map(({ id }) => id)).toEqual(['acme/chat']);
  expect(shown.data[0]).toMatchObject({
    object: 'model',
    created: expect.any(Number),
    visibility: 'public',
    context_length: 4096,
    status: 'ready',
    pricing: { prompt: '0', unit: 'token' },
  });
  const own = await world.get('/models');
  expect(own.headers.get('cache-control')).toBe('private, no-store');
  const ids = ((await own.json()) as { data: Json[] }).data.map(({ id }) => id);
  expect(ids).toEqual(['acme/chat', 'acme/embed', 'dear', 'off', 'plain', 'shape']);
  const embeddings = (await (await world.get('/models?type=embedding')).json()) as { data: Json[] };
  expect(embeddings.data.map(({ id }) => id)).toEqual(['acme/embed']);
});

test.for(['/models/acme%2Fchat', '/models/acme/chat', '/models/acme/chat/'])(
  '%s is one model',
  async (path, { world }) => {
    const answer = await world.get(path, null);
    expect([answer.status, ((await answer.json()) as Json)['id']]).toEqual([200, 'acme/chat']);
    expect(answer.headers.get('x-request-id')).toMatch(/^req_[0-9a-f]{24}$/);
  },
);

const message = (fields: object): object => ({ ...CHAT, messages: [fields] });
test.for([
  ['GET', '/models', 'bad', undefined, 401, 'invalid_api_key', null],
  ['GET', '/models/none', null, undefined, 404, 'model_not_found', 'model'],
  ['GET', '/models/plain', null, undefined, 404, 'model_not_found', 'model'],
  ['POST', '/chat/completions', null, CHAT, 401, 'invalid_api_key', null],
  ['POST', '/chat/completions', 'bad', CHAT, 401, 'invalid_api_key', null],
  ['POST', '/completions', null, CHAT, 401, 'invalid_api_key', null],
  ['POST', '/embeddings', null, CHAT, 401, 'invalid_api_key', null],
  ['POST', '/models/shape/invoke', null, {}, 401, 'invalid_api_key', null],
  ['GET', '/nothing', null, undefined, 404, 'unknown_url', null],
  ['GET', '', null, undefined, 404, 'unknown_url', null],
  ['GET', '/chat/completions', 'good', undefined, 405, 'method_not_supported', null],
  ['DELETE', '/models', 'good', undefined, 405, 'method_not_supported', null],
  ['POST', '/chat/completions', 'good', '{', 400, 'invalid_json', null],
  ['POST', '/chat/completions', 'good', '[]', 400, 'invalid_json', null],
  ['POST', '/chat/completions', 'good', { messages: HELLO }, 400, 'missing_required_parameter', 'model'],
  ['POST', '/chat/completions', 'good', { model: 'none', messages: HELLO }, 404, 'model_not_found', 'model'],
  ['POST', '/chat/completions', 'good', { model: 'acme/chat' }, 400, 'missing_required_parameter', 'messages'],
  ['POST', '/chat/completions', 'good', { ...CHAT, messages: [] }, 400, 'invalid_request', 'messages'],
  [
    'POST',
    '/chat/completions',
    'good',
    message({ role: 'robot', content: 'x' }),
    400,
    'invalid_request',
    'messages[0].role',
  ],
  ['POST', '/chat/completions', 'good', message({ role: 'user' }), 400, 'invalid_request', 'messages[0].content'],
  [
    'POST',
    '/chat/completions',
    'good',
    message({ role: 'tool', content: 'x' }),
    400,
    'invalid_request',
    'messages[0].tool_call_id',
  ],
  [
    'POST',
    '/chat/completions',
    'good',
    message({ role: 'user', content: [{ type: 'image_url' }] }),
    400,
    'unsupported_content',
    'messages[0].content[0]',
  ],
  ['POST', '/chat/completions', 'good', { ...CHAT, temperature: 3 }, 400, 'invalid_request', 'temperature'],
  ['POST', '/chat/completions', 'good', { ...CHAT, n: 9 }, 400, 'invalid_request', 'n'],
  ['POST', '/chat/completions', 'good', { ...CHAT, max_tokens: 0 }, 400, 'invalid_request', 'max_tokens'],
  ['POST', '/chat/completions', 'good', { ...CHAT, stop: ['a', 'b', 'c', 'd', 'e'] }, 400, 'invalid_request', 'stop'],
  [
    'POST',
    '/chat/completions',
    'good',
    { ...CHAT, stream_options: { include_usage: true } },
    400,
    'invalid_request',
    'stream_options',
  ],
  ['POST', '/chat/completions', 'good', { ...CHAT, max_tokens: 5000 }, 400, 'context_length_exceeded', 'messages'],
  [
    'POST',
    '/chat/completions',
    'good',
    { ...CHAT, model: 'plain', tools: [{ type: 'function' }] },
    400,
    'unsupported_parameter',
    'tools',
  ],
  [
    'POST',
    '/chat/completions',
    'good',
    { ...CHAT, model: 'plain', response_format: { type: 'json_schema' } },
    400,
    'unsupported_parameter',
    'response_format',
  ],
  ['POST', '/chat/completions', 'good', { ...CHAT, model: 'acme/embed' }, 400, 'model_type_mismatch', 'model'],
  ['POST', '/chat/completions', 'good', { ...CHAT, model: 'off' }, 503, 'model_unavailable', null],
  ['POST', '/embeddings', 'good', { model: 'acme/chat', input: 'x' }, 400, 'model_type_mismatch', 'model'],
  ['POST', '/embeddings', 'good', { model: 'acme/embed' }, 400, 'missing_required_parameter', 'input'],
  ['POST', '/embeddings', 'good', { model: 'acme/embed', input: ['a', ''] }, 400, 'invalid_request', 'input'],
  ['POST', '/embeddings', 'good', { model: 'acme/embed', input: [[1, 2]] }, 400, 'invalid_request', 'input'],
  [
    'POST',
    '/embeddings',
    'good',
    { model: 'acme/embed', input: 'a', dimensions: 4 },
    400,
    'invalid_request',
    'dimensions',
  ],
  [
    'POST',
    '/embeddings',
    'good',
    { model: 'acme/embed', input: 'a', encoding_format: 'hex' },
    400,
    'invalid_request',
    'encoding_format',
  ],
  ['POST', '/models/shape/invoke', 'good', { size: 1 }, 400, 'invalid_request', '/prompt'],
  ['POST', '/models/shape/invoke', 'good', { prompt: 'x', size: 3 }, 400, 'invalid_request', '/size'],
  ['POST', '/models/shape/invoke', 'good', { prompt: 'x', stream: true }, 400, 'unsupported_parameter', 'stream'],
] as const)('%s %s (%s) %o is %d %s', async ([method, path, who, body, status, code, param], { world }) => {
  const token = who === null ? null : who === 'bad' ? 'no-such-token' : world.set.token;
  const asked = world.server.requests.length;
  const answer = await fetch(`${world.url}/v1${path}`, {
    method,
    headers: { ...bearer(token), ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const error = await errorIn(answer);
  expect([answer.status, error['code'], error['param']]).toEqual([status, code, param]);
  expect(error['request_id']).toBe(answer.headers.get('x-request-id'));
  expect(world.server.requests.length).toBe(asked);
});

test('a body of another type is 415, and one that is too large 413', async ({ world }) => {
  const plain = await world.post('/chat/completions', 'x', { headers: { 'content-type': 'text/plain' } });
  expect([plain.status, (await errorIn(plain))['code']]).toEqual([415, 'unsupported_media_type']);
  const large = await world.post('/chat/completions', `"${'x'.repeat(17 * 1024 * 1024)}"`);
  expect([large.status, (await errorIn(large))['code']]).toEqual([413, 'request_too_large']);
});

test('tokens that may not call models are refused, and those of one app do not see them', async ({ world }) => {
  const { set } = world;
  const [replica] = set.running;
  if (replica === undefined) throw new Error('no replica runs');
  const tokenOf = async (limits: Json): Promise<string> => {
    const made = await set.call(replica, `/api/v1/token/${set.workspaceId}`, { body: limits });
    return String(jsonOf<Json>(made)['key'] ?? jsonOf<Json>(made)['token']);
  };
  const reader = await tokenOf({ name: 'reader', scopes: ['read'] });
  expect((await world.get('/models', reader)).status).toBe(200);
  const refused = await world.post('/chat/completions', CHAT, { token: reader });
  expect([refused.status, (await errorIn(refused))['code']]).toEqual([403, 'permission_denied']);
  const { deploymentId } = await set.deploy(replica, 'an-app');
  const found = await set.call(replica, `/api/v1/deployment/${set.workspaceId}/${deploymentId}`);
  const ofApp = await tokenOf({ name: 'of-app', app_id: jsonOf<Json>(found)['app_id'] });
  for (const path of ['/models', '/models/plain'])
    expect([path, (await world.get(path, ofApp)).status]).toEqual([path, 403]);
  expect((await world.post('/chat/completions', CHAT, { token: ofApp })).status).toBe(403);
});
