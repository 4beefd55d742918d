import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { createServer } from 'node:net';
import { join, resolve } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { tempDirectory } from '../helpers/services.ts';

const scripts = resolve(import.meta.dirname, '../../scripts/setup');

/**
 * Loads all of set-up first, because a user without rights may be unable to read the checkout. Then becomes that user.
 */
const AS_NOBODY = `
  const { setUp } = await import('${scripts}/profiles.mjs');
  const { main, stepLog } = await import('${scripts}/log.mjs');
  if (process.getuid() === 0) { process.setgroups([]); process.setgid(65534); process.setuid(65534); }
  await main(() => setUp('start', stepLog()));
`;

/** Runs set-up to its end, on an engine's socket that the test made. */
async function setUp(
  socket: string,
  options: { readonly asNobody?: boolean } = {},
): Promise<{ code: number; output: string }> {
  const program = options.asNobody === true ? ['--input-type=module', '-e', AS_NOBODY] : [`${scripts}.mjs`];
  const child = spawn(process.execPath, program, {
    env: { PATH: process.env['PATH'], HOME: '/nonexistent', DOCKER_HOST: `unix://${socket}` },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 30_000,
  });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const [code] = (await once(child, 'close')) as [number];
  return { code, output };
}

describe('set-up that cannot go on', () => {
  test('installs no packages through a link: npm would empty the directory that it leads to', async () => {
    const { whyNotToInstall } = (await import(`${scripts}/node-modules.mjs`)) as {
      whyNotToInstall: (root: string) => string | undefined;
    };
    const directory = tempDirectory('link');
    onTestFinished(() => directory.remove());
    const shared = join(directory.path, 'shared');
    const linked = join(directory.path, 'node_modules');
    expect(whyNotToInstall(directory.path)).toBeUndefined();
    mkdirSync(shared);
    symlinkSync(shared, linked);
    expect(whyNotToInstall(directory.path)).toContain(`${linked} is a link to ${shared}`);
    rmSync(shared, { recursive: true });
    expect(whyNotToInstall(directory.path)).toContain('a link to nowhere');
    rmSync(linked);
    mkdirSync(linked);
    expect(whyNotToInstall(directory.path)).toBeUndefined();
  });

  test('names a DOCKER_HOST that does not answer, and the cure, and exits with 1', async () => {
    const { code, output } = await setUp('/nonexistent/docker.sock');
    expect(code).toBe(1);
    expect(output).toContain('DOCKER_HOST names the Docker Engine at /nonexistent/docker.sock, and it does not answer');
    expect(output).toContain('unset DOCKER_HOST');
    expect(output).not.toContain('    at ');
  });

  test('tells a user who may not open the socket how to get there', async () => {
    const directory = tempDirectory('sock');
    const socket = join(directory.path, 'docker.sock');
    const server = createServer().listen(socket);
    await once(server, 'listening');
    chmodSync(socket, 0o000);
    try {
      const { code, output } = await setUp(socket, { asNobody: true });
      expect(code).toBe(1);
      expect(output).toContain(`may not open ${socket}`);
      expect(output).toMatch(/sudo usermod -aG docker \S+` and log in again, or run this command as root/);
    } finally {
      server.close();
      directory.remove();
    }
  });

  test('never restarts an engine that takes connections and does not answer', async () => {
    const directory = tempDirectory('sock');
    const socket = join(directory.path, 'docker.sock');
    const server = createServer((connection) => connection.resume()).listen(socket);
    await once(server, 'listening');
    try {
      const { code, output } = await setUp(socket);
      expect(code).toBe(1);
      expect(output).toContain('does not answer');
      expect(server.listening).toBe(true);
    } finally {
      server.close();
      directory.remove();
    }
  });
});
