// Real runners (the host's python3, no Docker) that dial a fake agent, ended with their test.
import { test as base } from 'vitest';
import { FakeAgent, type RunnerOptions } from '../helpers/fake-agent.ts';

export const test = base.extend<{ start: (options: RunnerOptions) => Promise<FakeAgent> }>({
  // oxlint-disable-next-line no-empty-pattern
  start: async ({}, use) => {
    const agents: FakeAgent[] = [];
    await use(async (options) => {
      const agent = await FakeAgent.start(options);
      agents.push(agent);
      return agent;
    });
    await Promise.all(agents.map((agent) => agent.stop()));
  },
});

/** Files of an app. */
export const app = (text: string): Readonly<Record<string, string>> => ({ 'app.py': text });
export const parsed = (text: string): unknown => JSON.parse(text) as unknown;
/** The error of a result. */
export const errorOf = (text: string): string => String((parsed(text) as { error: unknown }).error);
