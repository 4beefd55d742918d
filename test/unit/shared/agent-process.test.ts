import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { AGENT_NODE_OPTIONS, AGENT_PROCESS_ENV } from '#shared/agent-process.ts';

const unit = readFileSync(new URL('../../../systemd/longshore-agent.service', import.meta.url), 'utf8');

test("the agent's unit starts it as `longshore up` does", () => {
  expect(unit).toContain(
    `ExecStart=/opt/longshore/current/bin/node ${AGENT_NODE_OPTIONS.join(' ')} /opt/longshore/current/lib/agent.mjs\n`,
  );
  const environment = /^Environment=(.*)$/m.exec(unit)?.[1]?.split(' ');
  expect(environment).toEqual(
    expect.arrayContaining(Object.entries(AGENT_PROCESS_ENV).map(([name, value]) => `${name}=${value}`)),
  );
});

test('what Node is told leaves an agent as much memory as it needs', () => {
  const limit = (options: readonly string[]): number =>
    Number(
      execFileSync(process.execPath, [...options, '-p', 'v8.getHeapStatistics().heap_size_limit'], {
        encoding: 'utf8',
      }),
    );
  // The limit shrinks by no more than the halves of the young generation.
  expect(limit(AGENT_NODE_OPTIONS)).toBeGreaterThan(limit([]) * 0.9);
});
