// ASGI applications and `realtime` handlers in the real runner (python3 of the host, no Docker), over sockets of a fake
// agent.
import { test as base } from 'vitest';
import { FakeAgent, type RunnerOptions } from './fake-agent.ts';

export const test = base.extend<{ start: (options: RunnerOptions) => Promise<FakeAgent> }>({
  // oxlint-disable-next-line no-empty-pattern
  start: async ({}, use) => {
    const agents: FakeAgent[] = [];
    await use(async (options) => {
      const agent = await FakeAgent.start({
        handler: 'app:app',
        ...options,
        env: { STUB_TYPE: 'asgi/deployment', ...options.env },
      });
      agents.push(agent);
      return agent;
    });
    await Promise.all(agents.map((agent) => agent.stop()));
  },
});

/** The files of an application. */
export const appFiles = (text: string): Readonly<Record<string, string>> => ({ 'app.py': text });
