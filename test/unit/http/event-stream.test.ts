// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
// A generator's answer on a real connection: the items that its
// caller has before it ends, and the treatment of a slow reader.
import { request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import Fastify from 'fastify';
import { expect, test as base, vi } from 'vitest';
import type { TaskId } from '#shared/domain/ids.ts';
import { EventStream } from '../../../scheduler/api/http/invoke/event-stream.ts';

const TASK = 'task-1' as TaskId;
const event = (text: string): string => `data: ${JSON.stringify({ data: text })}\n\n`;

/** Calls a route that answers by an EventStream; both ends. */
const test = base.extend('call', async ({}, { onCleanup }) => {
  const app = Fastify();
  let take = (_stream: EventStream): void => undefined;
  const streams = new Promise<EventStream>((resolve) => (take = resolve));
  app.addHook('onRequest', (_request, reply, done) => {
    void reply.header('x-request-id', 'r-1');
    done();
  });
  app.get('/', (_request, reply) => take(new EventStream(reply)));
  await app.listen({ port: 0, host: '127.0.0.1' });
  onCleanup(() => app.close());
  return async () => {
    const sent = request({ port: (app.server.address() as AddressInfo).port });
    sent.on('error', () => undefined);
    sent.end();
    const stream = await streams;
    return { stream, answered: once(sent, 'response') as Promise<[IncomingMessage]>, sent };
  };
});

test('the first item brings the head, with what every answer has', async ({ call }) => {
  const { stream, answered } = await call();
  stream.item(TASK, event('a'));
  const [answer] = await answered;
  expect(answer.headers).toMatchObject({
    'content-type': 'text/event-stream; charset=utf-8',
    'x-task-id': TASK,
    'x-request-id': 'r-1',
  });
  let text = '';
  answer.setEncoding('utf8').on('data', (part: string) => (text += part));
  const ended = once(answer, 'end');
  await vi.waitUntil(() => text === event('a'));
  stream.end({ status: 'COMPLETE', reason: 'completed', body: event('a') + event('b') });
  await ended;
  expect(text).toBe(event('a') + event('b'));
});

test('who is far behind gets the rest at the end, all of it once', async ({ call }) => {
  const { stream, answered } = await call();
  const items = Array.from({ length: 400 }, (_, n) => event(`${n} ${'ü'.repeat(50_000)}`));
  for (const one of items) stream.item(TASK, one);
  const [answer] = await answered;
  stream.end({ status: 'COMPLETE', reason: 'completed', body: items.join('') });
  let text = '';
  answer.setEncoding('utf8').on('data', (part: string) => (text += part));
  await once(answer, 'end');
  expect(text === items.join('')).toBe(true);
});

test('one whose end is not known is cut', async ({ call }) => {
  const { stream, answered, sent } = await call();
  stream.item(TASK, event('a'));
  const [answer] = await answered;
  answer.on('error', () => undefined).resume();
  stream.cut();
  await once(sent, 'close');
  expect(answer.complete).toBe(false);
});
