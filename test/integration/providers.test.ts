// The providers file in the real daemon: its providers are called, listed and checked; SIGHUP reads it again; and pools
// that name a provider which is not there. The provider is a shell script that prints a file of the test.
import { chmodSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { jsonOf } from '../helpers/platform.ts';
import { aProviderWorld } from '../helpers/provider-world.ts';
import type { ProviderWorld } from '../helpers/provider-world.ts';
import { waitFor } from '../helpers/services.ts';

/** TAG in the listing stands for the tag of the installation. */
const PROGRAM = `#!/bin/sh
in=$(cat)
if [ "$1" = list ]; then
  [ -e "$FOLDER/hangs" ] && sleep 300
  tag=$(printf %s "$in" | sed 's/.*"installationId":"\\([^"]*\\)".*/\\1/')
  [ -e "$FOLDER/fails" ] && { cat "$FOLDER/fails" >&2; exit 5; }
  sed "s/TAG/$tag/g" "$FOLDER/listing"
else
  echo "quota exceeded" >&2
  exit 3
fi
`;
const EMPTY = '{"instances": []}';
const POOL = { machineCpuCores: 4, machineMemoryMib: 8192 };

type Json = Readonly<Record<string, unknown>>;
interface Listed extends Json {
  readonly name: string;
  readonly calls: readonly Json[];
  readonly pools: readonly Json[];
}

let set: ProviderWorld['set'];
let replica: ProviderWorld['replica'];
let program: string;
let folder: string;
let writeFile: ProviderWorld['write'];
let stop: ProviderWorld['stop'];

const readAgain = async (names: readonly string[], more: Json = {}): Promise<void> => {
  const before = replica.daemon.log().split('providers file read again').length;
  writeFile(names, more);
  replica.daemon.hangUp();
  await waitFor(
    () => replica.daemon.log().split('providers file read again').length > before,
    'the file is read again',
    30_000,
  );
};
const listing = (text: string, at = folder): void => writeFileSync(join(at, 'listing'), text);
const providers = async (): Promise<readonly Listed[]> =>
  jsonOf<{ readonly data: readonly Listed[] }>(await set.call(replica, '/api/v1/provider')).data;
const providerIs = async (name: string): Promise<Listed | undefined> =>
  (await providers()).find((one) => one.name === name);
const check = async (name: string): Promise<Json> => {
  const answer = await set.call(replica, `/api/v1/provider/${name}/check`, { method: 'POST' });
  expect(answer.status, answer.text).toBe(200);
  return jsonOf(answer);
};
const pool = async (name: string): Promise<Json> => {
  const { pools } = await set.gateway<{ readonly pools: readonly Json[] }>(replica, '/pools');
  return pools.find((one) => one['name'] === name)?.['state'] as Json;
};

beforeAll(async () => {
  const world = await aProviderWorld(PROGRAM, (at) => listing(EMPTY, at));
  ({ set, replica, folder, program, write: writeFile, stop } = world);
}, 120_000);
afterAll(() => stop());

test('the leader lists the provider of its file, and the list of providers tells of the call', async () => {
  await waitFor(async () => (await providerIs('cloud'))?.calls.length === 1, 'it was listed', 30_000);
  expect(await providers()).toMatchObject([
    {
      name: 'cloud',
      kind: 'command',
      known: true,
      program,
      timeout_seconds: 120,
      pools: [],
      machines: { pending: 0, joined: 0, leaving: 0 },
      calls: [{ verb: 'list', ok: true, failure: '', failures: 0 }],
      instances: 0,
    },
  ]);
});

describe('a check', () => {
  test('tells what the listing has, instances without a machine first', async () => {
    const instance = '"requestId": "r1", "installationId": "TAG", "state": "running", "hourlyCost": 0.5';
    listing(`{"instances": [{"instanceId": "i-1", ${instance}}, {"instanceId": "x", "installationId": "other"}]}`);
    expect(await check('cloud')).toMatchObject({
      ok: true,
      problem: '',
      cure: '',
      instances: 1,
      listed: [{ instance_id: 'i-1', state: 'running', hourly_cost: 0.5, machine_id: null }],
      missing: [],
    });
    listing(EMPTY);
  });

  test('names the failure of the program, and the call by which a person sees it', async () => {
    listing('Error: no such region');
    const failed = await check('cloud');
    expect(failed).toMatchObject({
      ok: false,
      problem: expect.stringMatching(/^list: its standard output is no JSON; it begins with "Error: no such region"/),
      cure: expect.stringMatching(
        /^run it as the user of the scheduler: echo '\{"installationId":"[-\da-f]{36}"\}' \| /,
      ),
      instances: null,
    });
    // The call is noted behind the answer.
    const isNoted = (call: Json): Promise<unknown> =>
      waitFor(
        async () =>
          isDeepStrictEqual(
            (await providerIs('cloud'))?.calls.map(({ ok, failures }) => ({ ok, failures })),
            [call],
          ),
        `the list of providers has ${JSON.stringify(call)}`,
        30_000,
      );
    await isNoted({ ok: false, failures: 1 });
    listing(EMPTY);
    expect(await check('cloud')).toMatchObject({ ok: true, instances: 0 });
    await isNoted({ ok: true, failures: 0 });
  });

  test('has the last lines of a program that fails', async () => {
    writeFileSync(join(folder, 'fails'), 'trace\n  at region\nno such region\n');
    expect(await check('cloud')).toMatchObject({
      problem: 'list: ended with exit code 5: trace at region no such region',
      output: 'trace\n  at region\nno such region',
    });
    rmSync(join(folder, 'fails'));
    expect(await check('cloud')).toMatchObject({ ok: true, output: '' });
  });

  test('ends by the deadline of the provider', async () => {
    await readAgain(['cloud'], { timeoutSeconds: 1 });
    writeFileSync(join(folder, 'hangs'), '');
    expect(await check('cloud')).toMatchObject({
      ok: false,
      problem: expect.stringContaining('did not end within 1 s'),
    });
    rmSync(join(folder, 'hangs'));
    await readAgain(['cloud']);
  });

  test.each([
    ['is not there', () => rmSync(program), /is not there/],
    ['may not be executed', () => chmodSync(program, 0o644), /may not execute/],
    ['has no interpreter', () => writeFileSync(program, '#!/nowhere/sh\n'), /names \/nowhere\/sh, which is not there/],
    ['has lines of another system', () => writeFileSync(program, '#!/bin/sh\r\n'), /end with carriage returns/],
  ])('of a program that %s says so, and does not run it', async (_name, breakIt, problem) => {
    breakIt();
    const answer = await check('cloud');
    expect(answer).toMatchObject({ ok: false, problem: expect.stringMatching(problem), took_ms: 0 });
    expect(answer['cure']).not.toBe('');
    writeFileSync(program, PROGRAM);
    chmodSync(program, 0o755);
  });

  test('of another name is refused with the names that there are', async () => {
    const answer = await set.call(replica, '/api/v1/provider/clod/check', { method: 'POST' });
    expect([answer.status, jsonOf<Json>(answer)['code']]).toEqual([404, 'provider_not_found']);
    expect(answer.text).toContain('there is no provider clod: LONGSHORE_PROVIDERS_FILE of this scheduler names cloud');
  });
});

describe('a pool', () => {
  const change = async (settings: Json, name = 'grown'): Promise<Json> =>
    jsonOf(await set.call(replica, `/api/v1/gateway/pools/${name}`, { method: 'PATCH', body: { settings } }));

  test('with a provider that is not there is refused, by field and with the names that there are', async () => {
    const settings = { ...POOL, provider: 'clod' };
    const refused = {
      ok: false,
      errMsg:
        'settings.provider: there is no provider clod: LONGSHORE_PROVIDERS_FILE of this scheduler names cloud; the file is read at the start and at SIGHUP',
    };
    const made = await set.call(replica, '/api/v1/gateway/pools', { body: { name: 'grown', settings } });
    expect(jsonOf<Json>(made)).toMatchObject(refused);
    await set.gateway(replica, '/pools', { name: 'grown' });
    expect(await change(settings)).toMatchObject(refused);
    expect(await change({ ...POOL, provider: 'cloud', maxMachines: 2 })).toMatchObject({ ok: true });
    expect(await pool('grown')).toMatchObject({ status: 'HEALTHY', reasons: [] });
  });

  test('whose calls fail is shown with its back-off and the failure', async () => {
    await change({ minMachines: 1, demandSeconds: 0 });
    const shown = await waitFor(
      async () => {
        const cloud = await providerIs('cloud');
        return cloud?.calls.some(({ verb }) => verb === 'create') === true && cloud.pools[0]?.['failure'] !== ''
          ? cloud
          : undefined;
      },
      'a create has failed',
      30_000,
    );
    expect(shown).toMatchObject({
      pools: [
        {
          name: 'grown',
          workspace_id: null,
          machines: 1,
          back_off_until: expect.any(String),
          failure: 'create: ended with exit code 3: quota exceeded',
        },
      ],
      machines: { pending: 1, joined: 0, leaving: 0 },
    });
    expect(shown.calls[0]).toMatchObject({
      verb: 'create',
      ok: false,
      failure: 'create: ended with exit code 3: quota exceeded',
    });
    await waitFor(() => replica.daemon.log().includes('"output":"quota exceeded"'), 'the log has its output', 30_000);
  });

  test('whose provider leaves the file is DEGRADED, and keeps its other settings changeable', async () => {
    await readAgain(['other']);
    await waitFor(async () => (await providerIs('other'))?.calls.length === 1, 'the new one is listed', 30_000);
    expect(await pool('grown')).toMatchObject({
      status: 'DEGRADED',
      reasons: ['there is no provider cloud: no machines are made'],
    });
    expect(await providerIs('cloud')).toMatchObject({ known: false, kind: null, program: '', pool_count: 1 });
    expect(await change({ minMachines: 0 })).toMatchObject({ ok: true });
    await readAgain(['cloud']);
    expect(await pool('grown')).toMatchObject({ status: 'HEALTHY' });
  });
});

test('a bad file changes nothing, and the log names the mistake', async () => {
  writeFileSync(join(folder, 'providers.json'), '{"providers": {"cloud": {"command": ["provider"]}}}');
  replica.daemon.hangUp();
  await waitFor(() => replica.daemon.log().includes('providers file not taken'), 'the bad file is said', 30_000);
  expect(replica.daemon.log()).toContain(
    'provider cloud: command must be a list of texts that begins with the absolute',
  );
  expect(await check('cloud')).toMatchObject({ ok: true });
});
