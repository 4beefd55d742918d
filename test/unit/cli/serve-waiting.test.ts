// Lines of a development server whose container does not run yet.
import { expect, test } from 'vitest';
import type { Client } from '#cli/client.ts';
import { ServeSession } from '#cli/serve/session.ts';
import type { SessionParts } from '#cli/serve/session.ts';

test('tell each step of the image that the container waits for', async () => {
  const starts = 'container c-1 of app starts on machine m1';
  const image = (text: string) => ({ summary: starts, waits_for: 'its image', details: [text] });
  const explanations = [
    { summary: 'container c-1 of app has no machine yet', details: ['1 machine is full'] },
    image('making the base image of Python 3.13: downloading packages'),
    image('making the base image of Python 3.13: downloading packages'),
    image('pulling image x: 1 of 5 layers'),
    { summary: starts, details: [] },
  ];
  const notes: string[] = [];
  const over = new AbortController();
  const client = {
    gateway: () => Promise.resolve({ state: 'STARTING', containerId: 'c-1' }),
    workspaceId: () => Promise.resolve('w'),
    rest: () => {
      const found = explanations.shift();
      if (found === undefined) over.abort();
      return Promise.resolve(found ?? {});
    },
  } as unknown as Client;
  const never = (): never => {
    throw new Error('nothing runs');
  };
  const session = new ServeSession(
    {
      client,
      stubId: 's',
      root: '/nowhere',
      uploaded: new Map(),
      onNote: (text) => notes.push(text),
      onServing: never,
      onReloaded: never,
      onSent: never,
      own: undefined as unknown as SessionParts['own'],
      signal: over.signal,
    },
    { startingMs: 1, askEveryMs: 1 },
  );
  await session.keep();
  expect(notes).toEqual([
    'container c-1 of app has no machine yet; 1 machine is full',
    'making the base image of Python 3.13: downloading packages',
    'pulling image x: 1 of 5 layers',
    starts,
  ]);
});
