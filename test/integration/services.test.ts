import { existsSync } from 'node:fs';
import { describe, expect } from 'vitest';
import { Client } from 'pg';
import { aPostgres, aRedis, docker, test } from '../helpers/services.ts';

describe('the test Redis', () => {
  test('answers on its own socket and keeps what was written through a crash', async ({ redis }) => {
    const client = redis.connect();
    await client.set('k', 'v');
    await client.config('SET', 'appendfsync', 'always');
    await client.set('k2', 'v2');
    await redis.crash();
    await redis.restart();
    expect(await client.get('k2')).toBe('v2');
  });

  test('fails the file that leaves a connection behind, and removes its directory all the same', async () => {
    const redis = await aRedis();
    const guest = redis.connect();
    await guest.ping();
    const stranger = guest.duplicate();
    stranger.on('error', () => undefined);
    await stranger.ping();
    await expect(redis.stop()).rejects.toThrow('connections to Redis left behind');
    stranger.disconnect();
    expect(existsSync(redis.directory)).toBe(false);
  });
});

describe('the test Postgres', () => {
  test('recovers what was committed before a crash', async ({ postgres }) => {
    const write = new Client({ connectionString: postgres.url });
    write.on('error', () => undefined);
    await write.connect();
    await write.query('create table t (n int); insert into t values (7)');
    await postgres.crash();
    await postgres.restart();
    const read = new Client({ connectionString: postgres.url });
    await read.connect();
    expect((await read.query<{ n: number }>('select n from t')).rows).toEqual([{ n: 7 }]);
    await read.end();
  });

  test('fails the file that leaves a connection behind', async () => {
    const postgres = await aPostgres();
    const guest = new Client({ connectionString: postgres.url, application_name: 'guest' });
    guest.on('error', () => undefined);
    await guest.connect();
    await expect(postgres.stop()).rejects.toThrow('"guest"');
  });
});

describe('the test Docker', () => {
  test('runs the base image and removes what it ran', async ({ docker: engine }) => {
    const container = await engine.run({ Cmd: ['python3', '-c', 'print(6 * 7)'], HostConfig: { NetworkMode: 'none' } });
    const { StatusCode: code } = (await container.wait()) as { StatusCode: number };
    expect(code).toBe(0);
    expect((await container.logs({ stdout: true })).toString()).toContain('42');
  });

  test('has a base image with the parts of Python that packages build on, a shell, and certificates', async ({
    docker: engine,
  }) => {
    const program = `import ssl, sqlite3, ctypes, bz2, lzma, readline, curses, venv, zoneinfo
assert ssl.create_default_context().get_ca_certs(), 'no certificates'
zoneinfo.ZoneInfo('Europe/Berlin')`;
    const container = await engine.run({
      Cmd: ['sh', '-c', 'python3 -c "$PROGRAM" && python --version'],
      Env: [`PROGRAM=${program}`],
      HostConfig: { NetworkMode: 'none' },
    });
    const { StatusCode: code } = (await container.wait()) as { StatusCode: number };
    expect((await container.logs({ stdout: true, stderr: true })).toString()).toContain('Python 3.');
    expect(code).toBe(0);
  });

  test('fails the test that leaves a container, network or volume behind, and removes them', async () => {
    const engine = await docker();
    const container = await engine.client.createContainer({
      Image: engine.baseImage,
      Cmd: ['true'],
      Labels: engine.labels,
    });
    await engine.client.createNetwork({ Name: `left-${engine.label}`, Labels: engine.labels });
    await engine.client.createVolume({ Name: `left-${engine.label}`, Labels: engine.labels });
    await expect(engine.cleanUp()).rejects.toThrow(/container .*, network left-.*, volume left-/);
    await expect(container.inspect()).rejects.toThrow('no such container');
  });
});
