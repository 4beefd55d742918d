import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { once } from 'node:events';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { SocketListener } from '#agent/slots/listener.ts';

let folder: string;
const open: SocketListener[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'ls-listener-'));
});

afterEach(() => {
  for (const one of open.splice(0)) one.close();
  rmSync(folder, { recursive: true, force: true });
});

function listener(path: string, heard: string[] = []): SocketListener {
  const made = new SocketListener(
    path,
    (socket) => {
      heard.push(path);
      socket.end();
    },
    { most: 4 },
  );
  open.push(made);
  return made;
}

async function dial(path: string): Promise<void> {
  const socket = connect({ path });
  socket.resume();
  await once(socket, 'close');
}

it('many listen at once, some in the place of what an earlier agent left, some in folders that are not there', async () => {
  const heard: string[] = [];
  const paths = Array.from({ length: 20 }, (_, at) => join(folder, `c${at}`, 'agent.sock'));
  for (const path of paths.filter((_, at) => at % 3 !== 1)) {
    mkdirSync(join(path, '..'));
    writeFileSync(path, 'left by an earlier agent');
  }
  await Promise.all(paths.map((path) => listener(path, heard).listen()));
  await Promise.all(paths.map(dial));
  expect(heard.toSorted()).toEqual(paths.toSorted());
  for (const path of paths) {
    expect(statSync(path).mode & 0o777).toBe(0o666);
    if (path.includes('/c1/')) expect(statSync(join(path, '..')).mode & 0o777).toBe(0o711);
  }
});

it.each([0, 3])('one whose place cannot be cleared fails alone, wherever it stands in the row', async (broken) => {
  const heard: string[] = [];
  const paths = Array.from({ length: 6 }, (_, at) => join(folder, `c${at}`, 'agent.sock'));
  for (const path of paths) mkdirSync(join(path, '..'));
  mkdirSync(join(paths[broken] ?? '', 'a folder'), { recursive: true });
  const results = await Promise.allSettled(paths.map((path) => listener(path, heard).listen()));
  expect(results.map(({ status }) => status)).toEqual(paths.map((_, at) => (at === broken ? 'rejected' : 'fulfilled')));
  const others = paths.filter((_, at) => at !== broken);
  await Promise.all(others.map(dial));
  expect(heard.toSorted()).toEqual(others);
});
