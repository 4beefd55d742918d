// JSON below /v1 keeps its bytes both ways, but for what the platform sets: the name of the model, streams and usage.
import { describe, expect } from 'vitest';
import { memberText } from '#shared/json-text.ts';
import { EXACT, EXACT_OBJECT } from '../helpers/exact-json.ts';
import { waitFor } from '../helpers/services.ts';
import { eventsIn, test } from './inference-fixture.ts';

const JSON_TYPE = 'application/json';
/** Members that no part of the platform reads. */
const OWN = `"10":1,"9":[1.0, 2],"x":${EXACT_OBJECT} ,"y":1,"y":2`;
const MESSAGES = String.raw`[ {"role":"user","content":"\u00e9\ud800\/\u2028 é","extra":${EXACT_OBJECT}} ]`;
const TOOLS = `[{"type":"function","function":{"name":"f","parameters":${EXACT_OBJECT}}}]`;

describe('a request', () => {
  test('reaches the model as it came, with the name there in place of its own', async ({ world }) => {
    const { server } = world;
    server.script('/chat/completions', { json: { choices: [{ message: {} }] } });
    const body = (model: string): string =>
      ` {${OWN},\n"temperature": 1.0 , "model" : "${model}","messages":${MESSAGES},"tools":${TOOLS}, "max_tokens": 2E1}\n`;
    expect((await world.post('/chat/completions', body('acme/chat'))).status).toBe(200);
    expect(server.last.text).toBe(body('served-name'));
    server.script('/completions', { json: { choices: [{ text: '' }] } });
    const plain = (model: string): string => `{"prompt":[ "\\u0000", "b" ],${OWN},"model":"${model}"}`;
    expect((await world.post('/completions', plain('acme/chat'))).status).toBe(200);
    expect(server.last.text).toBe(plain('served-name'));
  });

  test('of a stream has what the platform adds, and the rest as it came', async ({ world }) => {
    world.server.script('/chat/completions', { frames: [] });
    const body = (model: string, end: string): string =>
      `{${OWN},"model":"${model}","stream":true,"messages":${MESSAGES}${end}}`;
    await (await world.post('/chat/completions', body('acme/chat', ''))).text();
    expect(world.server.last.text).toBe(body('served-name', ',"stream_options":{"include_usage":true}'));
  });

  test('has each field once by which it was checked, with the value that counted', async ({ world }) => {
    world.server.script('/chat/completions', { json: { choices: [{ message: {} }] } });
    const hidden = '"model":"off","messages":[{"role":"user","content":[{"type":"image_url"}]}],"n":8,"max_tokens":9';
    const counted = `"messages":${MESSAGES},"n":1,"max_tokens":3`;
    await world.post('/chat/completions', `{${hidden},"model":"acme/chat",${counted}}`);
    expect(world.server.last.text).toBe(`{"model":"served-name",${counted}}`);
  });

  test('with more fields than anybody sends is refused, and an answer with as many is an error', async ({ world }) => {
    const many = `"a":1,`.repeat(20_000);
    const messages = '"messages":[{"role":"user","content":"a"}]';
    expect((await world.post('/chat/completions', `{${many}"model":"acme/chat",${messages}}`)).status).toBe(400);
    const text = `{${many}"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop","delta":{}}]}`;
    for (const type of [JSON_TYPE, 'text/event-stream']) {
      world.server.script('/chat/completions', { type, text: type === JSON_TYPE ? text : `data: ${text}\n\n` });
      const stream = type !== JSON_TYPE;
      const answer = await world.post('/chat/completions', `{"model":"acme/chat",${messages},"stream":${stream}}`);
      expect(await answer.text()).toContain('"code":"backend_error"');
    }
  });

  test('of a custom model is untouched', async ({ world }) => {
    const text = ` { "prompt" : "\\u0041", ${OWN} , "size":1.0,"model":"mine" }`;
    world.server.script('/invoke', { type: JSON_TYPE, text: ` ${EXACT_OBJECT}\n` });
    const answer = await world.post('/models/shape/invoke', text);
    expect(world.server.last.text).toBe(text);
    expect(await answer.text()).toBe(` ${EXACT_OBJECT}\n`);
  });
});

/** A choice of a whole chat with members that nothing here reads. */
const CHOICE = `{"index":0,"message":{"role":"assistant","content":"\\u00e9 é",${OWN}},"finish_reason":"stop",${OWN}}`;

describe('an answer', () => {
  test.for([
    ['chat', '/chat/completions', '"messages":[{"role":"user","content":"a"}]', CHOICE],
    ['completion', '/completions', '"prompt":"a"', `{"text":"\\u00e9",${OWN}}`],
  ] as const)('comes back as it was, with the id of the catalog: %s', async ([, path, request, choice], { world }) => {
    const { server } = world;
    const answer = (model: string, usage: string): string =>
      `{${OWN}, "model" : "${model}","choices":[${choice}],"usage":{${usage}}}`;
    const usage = '"prompt_tokens":7.0,"completion_tokens":3,"total_tokens":10,"cost":0.10,"details":{"b":1.0,"a":2}';
    server.script(path, { type: JSON_TYPE, text: answer('served-name', usage) });
    const whole = await world.post(path, `{"model":"acme/chat",${request}}`);
    expect(await whole.text()).toBe(answer('acme/chat', usage));
    // Tokens that are not as they were settled are corrected, and others stay.
    server.script(path, { type: JSON_TYPE, text: answer('served-name', usage.replace('10', '99')) });
    const corrected = await world.post(path, `{"model":"acme/chat",${request}}`);
    expect(await corrected.text()).toBe(answer('acme/chat', usage));
  });

  test('of a stream comes in frames as they were, also in lines, and with usage', async ({ world }) => {
    const frame = (model: string, more = ''): string =>
      `{${OWN},"model":"${model}","choices":[{"index":0,"delta":{"content":"\\u2028 é",${OWN}},"finish_reason":"stop"}]${more}}`;
    const usage = '{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,"cost":0.10}';
    const lines = frame('served-name').replaceAll(',"choices"', ',\n"choices"').replaceAll('\n', '\ndata: ');
    const frames = [
      { raw: `data: ${frame('served-name', ',"usage":null')}\n\n` },
      { raw: `data: ${lines}\n\n` },
      { raw: `data: {"model":"served-name","choices":[],"usage":${usage}}\n\ndata: [DONE]\n\n` },
    ];
    world.server.script('/chat/completions', { frames });
    const request = '"model":"acme/chat","messages":[{"role":"user","content":"a"}],"stream":true';
    const plain = await (await world.post('/chat/completions', `{${request}}`)).text();
    expect(eventsIn(plain).map((event) => event.replaceAll('\ndata: ', '\n'))).toEqual([
      frame('acme/chat'),
      frame('acme/chat').replaceAll(',"choices"', ',\n"choices"'),
      '[DONE]',
    ]);
    const asked = await world.post('/chat/completions', `{${request},"stream_options":{"include_usage":true}}`);
    const [first, , last] = eventsIn(await asked.text()).map((event) => event.replaceAll('\ndata: ', '\n'));
    expect(first).toBe(frame('acme/chat', ',"usage":null'));
    expect(memberText(last ?? '', 'usage')).toBe(usage);
    expect(memberText(last ?? '', 'choices')).toBe('[]');
  });

  test('that comes whole in place of a stream keeps its parts', async ({ world }) => {
    const call = `{"id":"c","function":{"name":"f","arguments":"{\\"n\\":1.0}"},${OWN}}`;
    const message = `{"role":"assistant","content":null,"tool_calls":[${call}],${OWN}}`;
    const text = `{${OWN},"model":"served-name","choices":[{"index":0,"message":${message},${OWN}}]}`;
    world.server.script('/chat/completions', { type: JSON_TYPE, text });
    const request = '"model":"acme/chat","messages":[{"role":"user","content":"a"}],"stream":true';
    const [first = '', second = ''] = eventsIn(await (await world.post('/chat/completions', `{${request}}`)).text());
    expect(first).toContain(`"tool_calls":[${call.slice(0, -1)},"index":0}],${OWN}}`);
    expect(first.startsWith(`{${OWN},"model":"acme/chat"`)).toBe(true);
    expect(second.startsWith(`{${OWN},"model":"acme/chat"`)).toBe(true);
  });

  test('of a custom model is untouched in its stream', async ({ world }) => {
    await world.model({ id: 'exact-stream', type: 'custom', capabilities: { streaming: true } });
    const texts = EXACT.filter((text) => text.startsWith('{'));
    const frames = [...texts, '[DONE]'].map((text) => ({ raw: `data: ${text}\n\n` }));
    world.server.script('/invoke', { frames });
    const answer = await world.post('/models/exact-stream/invoke', '{"stream":true}');
    expect(eventsIn(await answer.text())).toEqual([...texts, '[DONE]']);
  });

  test('that is read later is the result of its task as it came', async ({ world }) => {
    world.server.script('/invoke', { type: JSON_TYPE, text: EXACT_OBJECT });
    const body = '{"prompt":"\\u0041","n":9007199254740993}';
    const later = await world.post('/models/shape/invoke', body, { headers: { prefer: 'respond-async' } });
    const { url } = (await later.json()) as { readonly url: string };
    const record = await waitFor(
      async () => {
        const text = await (await fetch(url, { headers: { authorization: `Bearer ${world.set.token}` } })).text();
        return memberText(text, 'status') === '"COMPLETE"' && text;
      },
      'the call is over',
      30_000,
    );
    expect(memberText(record, 'result')).toBe(EXACT_OBJECT);
    expect(world.server.last.text).toBe(body);
  });
});

test('embeddings keep the bytes of inputs and of vectors, in one batch and in several', async ({ world }) => {
  const { server } = world;
  const vectors = ['[1.0,-0.0,0.10]', '[1e-7, 2.50,3]', '[0.30000000000000004,1E2,-1]'];
  const inputs = ['"\\u0041"', '"\\ud800 é"', '"\\/"'];
  for (const count of [1, 2, 3]) {
    server.script('/embeddings', ({ text }) => {
      const given = memberText(text, 'input') ?? '';
      const items = inputs.flatMap((input, at) => (given.includes(input) ? [vectors[at] ?? ''] : []));
      const data = items.map((vector, index) => `{"index":${index},"embedding":${vector}}`);
      return { type: JSON_TYPE, text: `{"data":[${data.toReversed().join(' , ')}]}` };
    });
    const asked = server.requests.length;
    const answer = await world.post(
      '/embeddings',
      `{${OWN},"model":"acme/embed","input":[ ${inputs.slice(0, count).join(' , ')} ]}`,
    );
    const text = await answer.text();
    for (const [at, vector] of vectors.slice(0, count).entries())
      expect(text).toContain(`{"object":"embedding","index":${at},"embedding":${vector}}`);
    const sent = server.requests.slice(asked).map((request) => request.text);
    expect(sent.every((one) => one.startsWith(`{${OWN},"model":"served-name","input":[`))).toBe(true);
    expect(sent.flatMap((one) => inputs.filter((input) => one.includes(input))).toSorted()).toEqual(
      inputs.slice(0, count).toSorted(),
    );
  }
  server.script('/embeddings', { type: JSON_TYPE, text: `{"data":[{"embedding":[1.0,2,3]}]}` });
  await world.post('/embeddings', '{"input":"\\u0041","model":"acme/embed"}');
  expect(server.last.text).toBe('{"input":["\\u0041"],"model":"served-name","encoding_format":"float"}');
});
