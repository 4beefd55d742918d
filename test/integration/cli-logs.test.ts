// `logs` against the server of cli-gate.ts: what is found, what is followed, and what wrote nothing.
import { describe, expect, test } from 'vitest';
import { waitFor } from '../helpers/programs.ts';
import { gate, run, start, useGate } from './cli-gate.ts';

useGate();

describe('logs', () => {
  test('of a container that has ended are found by the end of its id', async () => {
    const id = 'endpoint-1-c69a6597';
    gate.reply = (route, request) => {
      if (route === 'GET /api/v1/workspace/current') return { body: { id: 'w-1', external_id: 'w-1' } };
      if (route === 'GET /api/v1/gateway/containers') return { body: { ok: true, containers: [] } };
      if (route === 'GET /api/v1/explain/w-1/c69a6597') return { body: { kind: 'container', id } };
      const named = URL.parse(request.url ?? '', gate.url)?.searchParams.get('container_id');
      return route === 'GET /api/v1/logs/w-1' && named === id
        ? {
            body: {
              logs: [{ seq_num: 1, timestamp: '2026-01-01T10:00:00.000Z', container_id: id, message: 'it was me' }],
            },
          }
        : undefined;
    };
    expect((await run(['logs', '--container', 'c69a6597'])).stdout).toBe(
      '2026-01-01 10:00:00.000 c69a6597 it was me\n',
    );
  });

  test('of a task that wrote nothing say how it stands, and where to look next', async () => {
    const explained = {
      summary: 'task t-1 of sum/v1 is ERROR (start_failed): no container could start for it',
      next_steps: ['`longshore logs --task t-1` shows what it wrote', '`longshore logs sum` shows more'],
    };
    gate.reply = (route) => {
      if (route === 'GET /api/v1/workspace/current') return { body: { id: 'w-1', external_id: 'w-1' } };
      if (route === 'GET /api/v1/explain/w-1/t-1') return { body: explained };
      return route === 'GET /api/v1/logs/w-1' ? { body: { logs: [] } } : undefined;
    };
    expect(await run(['logs', '--task', 't-1'])).toEqual({
      code: 0,
      stdout: '',
      stderr: `no line of task t-1: ${explained.summary}\nwhat to do:\n  - \`longshore logs sum\` shows more\n`,
    });
  });

  test('of a deployment that wrote nothing say how it stands', async () => {
    const explained = { summary: 'sum/v1 has no container: nobody calls it', next_steps: [] };
    gate.reply = (route) => {
      if (route === 'GET /api/v1/workspace/current') return { body: { id: 'w-1', external_id: 'w-1' } };
      if (route === 'GET /api/v1/gateway/deployments')
        return {
          body: { ok: true, deployments: [{ id: 'd-1', name: 'sum', stubType: 'endpoint', version: 1, active: true }] },
        };
      if (route === 'GET /api/v1/explain/w-1/d-1') return { body: explained };
      return route === 'GET /api/v1/logs/w-1' ? { body: { logs: [] } } : undefined;
    };
    expect(await run(['logs', 'sum'])).toEqual({
      code: 0,
      stdout: '',
      stderr: `no line of deployment sum: ${explained.summary}\nwhat to do:\n  - \`longshore explain sum\` says how it stands\n`,
    });
    expect(await run(['logs'])).toEqual({
      code: 0,
      stdout: '',
      stderr: 'no container of this workspace has written a line that is kept\n',
    });
  });

  test('that follow go on behind the last line, also after a lost connection, and print each line once', async () => {
    const lines = Array.from({ length: 5 }, (_unused, n) => ({
      seq_num: n + 1,
      timestamp: '2026-01-01T10:00:00.000Z',
      container_id: 'endpoint-1-abcdef01',
      message: `line ${n + 1}`,
    }));
    const starts: (readonly (string | undefined)[])[] = [];
    gate.reply = (route, request) => {
      if (route === 'GET /api/v1/workspace/current') return { body: { id: 'w-1', external_id: 'w-1' } };
      if (route === 'GET /api/v1/logs/w-1') return { body: { logs: lines.slice(0, 2) } };
      if (route !== 'GET /api/v1/logs/w-1/stream') return undefined;
      // Each stream has one line, and then it breaks off.
      const asked = URL.parse(request.url ?? '', gate.url)?.searchParams.get('seq_num') ?? undefined;
      const last = request.headers['last-event-id']?.toString();
      starts.push([asked, last]);
      const line = lines[Number(asked ?? Number(last) + 1) - 1];
      const frame = line === undefined ? '' : `id: ${line.seq_num}\nevent: log\ndata: ${JSON.stringify(line)}\n\n`;
      return { body: `: connected\n\nretry: 3000\n\n${frame}`, type: 'text/event-stream' };
    };
    const following = start(['logs', '--task', 't-1', '--follow']);
    await waitFor(() => following.stdout().includes('line 5'), 'every line is printed', 20_000);
    following.child.kill('SIGINT');
    await following.ended;
    expect(following.stdout().match(/line \d/g)).toEqual(['line 1', 'line 2', 'line 3', 'line 4', 'line 5']);
    expect(starts.slice(0, 3)).toEqual([
      ['3', undefined],
      [undefined, '3'],
      [undefined, '4'],
    ]);
  });
});
