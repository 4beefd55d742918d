import { describe, expect, test } from 'vitest';
import { affinityOf, estimatedTokens, servingCallOf } from '#scheduler/tasks/serving/request.ts';

const system = { role: 'system', content: 'You answer briefly.' };
const user = (content: unknown) => ({ role: 'user', content });
const LLM = { contextLength: 8192 };

describe('affinity of a call', () => {
  const chat = (...messages: unknown[]) => ({ model: 'm', messages });

  test('later turns of a conversation have the hash of its first one', () => {
    const first = affinityOf(chat(system, user('Hello')), undefined);
    const later = affinityOf(
      chat(system, user('Hello'), { role: 'assistant', content: 'Hi' }, user('Why?')),
      undefined,
    );
    expect(first).toMatch(/^[\w-]{22}$/);
    expect(later).toBe(first);
    expect(affinityOf(chat(system, user('Good day')), undefined)).not.toBe(first);
    expect(affinityOf(chat({ ...system, content: 'You answer at length.' }, user('Hello')), undefined)).not.toBe(first);
  });

  test('the header decides before prompt_cache_key, that before user, that before the conversation', () => {
    const body = { ...chat(user('Hello')), user: 'u', prompt_cache_key: 'k' };
    expect(affinityOf(body, 'mine')).toBe(affinityOf({}, 'mine'));
    expect(affinityOf(body, undefined)).toBe(affinityOf({ prompt_cache_key: 'k' }, undefined));
    expect(affinityOf(body, '')).toBe(affinityOf({ prompt_cache_key: 'k' }, undefined));
    expect(affinityOf({ ...chat(user('Hello')), user: 'u' }, undefined)).toBe(affinityOf({ user: 'u' }, undefined));
    expect(affinityOf({ user: 'same' }, undefined)).not.toBe(affinityOf({}, 'same'));
  });

  test('plain prompts that begin alike share a hash; embeddings have none', () => {
    const shared = 'Instructions. '.repeat(100);
    expect(affinityOf({ prompt: `${shared}one` }, undefined)).toBe(affinityOf({ prompt: `${shared}two` }, undefined));
    expect(affinityOf({ input: ['text'] }, undefined)).toBeUndefined();
    expect(affinityOf({ messages: 'no list' }, undefined)).toBeUndefined();
  });

  test('parts of a message count, text or not', () => {
    const image = (url: string) =>
      user([
        { type: 'image_url', image_url: { url } },
        { type: 'text', text: 'What?' },
      ]);
    expect(affinityOf(chat(image('a')), undefined)).toBe(affinityOf(chat(image('a'), user('And?')), undefined));
    expect(affinityOf(chat(image('a')), undefined)).not.toBe(affinityOf(chat(image('b')), undefined));
  });
});

describe('tokens of a call', () => {
  test('a quarter of the characters, and the longest answer for each choice', () => {
    const messages = [system, user('x'.repeat(381))];
    expect(estimatedTokens({ messages })).toBe(100 + 256);
    expect(estimatedTokens({ messages, max_tokens: 50, max_completion_tokens: 20, n: 3 })).toBe(100 + 60);
    expect(estimatedTokens({ prompt: 'abcd', max_tokens: 4 })).toBe(5);
  });

  test('tokens sent as numbers count once each; embeddings have no answer', () => {
    expect(estimatedTokens({ input: [1, 2, 3] })).toBe(3);
    expect(estimatedTokens({ input: [[1, 2], [3]] })).toBe(3);
    expect(estimatedTokens({ input: 'abcdefgh' })).toBe(2);
    expect(estimatedTokens({})).toBe(256);
  });

  test('the bytes of an image are no prompt', () => {
    const image = { type: 'image_url', image_url: { url: `data:image/png;base64,${'A'.repeat(100_000)}` } };
    expect(estimatedTokens({ messages: [user([image, { type: 'text', text: 'abcd' }])], max_tokens: 1 })).toBe(2);
  });

  test('a stream weighs its share of the tokens that a container holds', () => {
    const call = servingCallOf({ messages: [user('abcd')], max_tokens: 9 }, 'c', LLM, 4);
    expect(call).toEqual({ tokens: 10, tokensPerStream: 8192, prefers: affinityOf({}, 'c') });
    expect(servingCallOf({}, undefined, { ...LLM, cacheTokens: 10_000 }, 4).tokensPerStream).toBe(2500);
    expect(servingCallOf({ input: 'x' }, undefined, LLM, 1)).not.toHaveProperty('prefers');
  });
});
