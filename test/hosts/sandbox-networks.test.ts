// Network rules of a sandbox that change while its agent is away: they are kept, and set at its return. Meanwhile the
// rules of before are in force, and at no moment more than one of both permits.
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { expect } from 'vitest';
import { jsonOf, test } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { routeHere } from '../helpers/routes.ts';
import { makeSandbox, nothingLeft, runIn, sandboxStub, stopSandbox } from '../helpers/sandboxes.ts';
import { waitFor } from '../helpers/services.ts';

/** Addresses of a service elsewhere. Routes lead them to a listener of this machine, whose own they are not. */
const OCTET = randomInt(1, 255);
const [NEAR, FAR] = [`198.18.${OCTET}.1`, `198.18.${OCTET}.2`];

const PROBE = (port: number): string => `
import socket, sys, time
def reaches(address):
    try:
        socket.create_connection((address, ${port}), 3).close()
        return True
    except OSError:
        return False
`;
/** Notes what is reached, the address first that only the new rules permit: both at once is more than either. */
const WATCH = (port: number): string => `${PROBE(port)}
seen = set()
while True:
    pair = (reaches('${FAR}'), reaches('${NEAR}'))
    if pair not in seen:
        seen.add(pair)
        print(*pair, flush=True)
    time.sleep(0.01)
`;

/** Runs a Python program in the container, past scheduler and agent. @returns its exit code */
async function byEngine(platform: Platform, box: string, program: string): Promise<number> {
  const found = (await platform.containers()).find(({ Labels }) => Labels['io.longshore.container'] === box);
  const exec = await platform.engine.client.getContainer(found?.Id ?? '').exec({ Cmd: ['python3', '-c', program] });
  await exec.start({ Detach: true });
  await waitFor(async () => !(await exec.inspect()).Running, 'the program has run', 60_000);
  return (await exec.inspect()).ExitCode ?? -1;
}

test('rules that changed while the agent was away are set at its return, also by another scheduler', async ({
  platform,
}) => {
  const server = createServer((socket) => socket.on('error', () => undefined).end());
  server.listen(0, '0.0.0.0');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  await routeHere(platform.engine, 'add', [NEAR, FAR]);
  try {
    const box = await makeSandbox(platform, await sandboxStub(platform, { allowList: [`${NEAR}/32`], cpu: 500 }));
    await platform.gateway(`/pods/${box}/connect`, {});
    const asks = (address: string): string => `${PROBE(port)}\nsys.exit(0 if reaches('${address}') else 1)`;
    const reached = async (): Promise<readonly boolean[]> => {
      const codes: number[] = [];
      for (const address of [NEAR, FAR]) codes.push(await byEngine(platform, box, asks(address)));
      return codes.map((code) => code === 0);
    };
    const update = async (rules: object): Promise<object> =>
      jsonOf(await platform.call(`/api/v1/gateway/pods/${box}/network/update`, { body: rules }));
    const becomes = (expected: readonly boolean[]): Promise<void> =>
      expect.poll(reached, { timeout: 60_000 }).toEqual(expected);
    const keptForLater = { ok: false, errorMsg: expect.stringContaining('the rules are kept') as string };

    expect(await reached()).toEqual([true, false]);
    const { pid } = await platform.gateway<{ pid: number }>(`/pods/${box}/exec`, {
      command: `cat >/tmp/watch.py <<'EOF'\n${WATCH(port)}\nEOF\nexec python3 /tmp/watch.py`,
    });
    await platform.agent.kill();
    expect(await update({ allowList: [`${FAR}/32`] })).toMatchObject(keptForLater);
    expect(await reached()).toEqual([true, false]);
    await platform.agent.start();
    await becomes([false, true]);
    const { stdout = '' } = await platform.gateway(`/pods/${box}/stdout?pid=${pid}`);
    const seen = stdout.trim().split('\n');
    expect(seen).toEqual(expect.arrayContaining(['False True', 'True False']));
    expect(seen).not.toContain('True True');

    // Both away: the row has the rules.
    await platform.agent.kill();
    expect(await update({ blockNetwork: true })).toMatchObject(keptForLater);
    expect(await reached()).toEqual([false, true]);
    await platform.scheduler.kill();
    await platform.startScheduler();
    await platform.agent.start();
    await becomes([false, false]);
    expect(await update({ allowList: [`${NEAR}/32`] })).toMatchObject({ ok: true, errorMsg: '' });
    expect(await reached()).toEqual([true, false]);
    expect(await runIn(platform, box, 'echo well')).toMatchObject({ stdout: 'well\n' });
    expect(await stopSandbox(platform, box)).toBe(true);
    await nothingLeft(platform, [box]);
  } finally {
    server.close();
    await routeHere(platform.engine, 'del', [NEAR, FAR]);
  }
});
