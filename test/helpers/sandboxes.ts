// Sandboxes of an installation: made, used and ended over HTTP, as published clients do.
import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { shortIdOf } from '#agent/containers/spec.ts';
import { jsonOf } from './platform.ts';
import type { Platform } from './platform.ts';
import { waitFor } from './services.ts';

/** Most starts of a container that a test sees. */
const EPOCHS = [1, 2, 3];
const STUB = { stubType: 'sandbox', handler: '', cpu: 250, memory: 128, keepWarmSeconds: 600 };

/** How a program ended, as `exec` with `wait` tells it. */
export interface Ended {
  readonly pid: number;
  readonly done: boolean;
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

export async function sandboxStub(platform: Platform, fields: object = {}): Promise<string> {
  return String((await platform.gateway('/stubs', { ...STUB, name: 'box', ...fields }))['stubId']);
}

export async function makeSandbox(platform: Platform, stubId: string): Promise<string> {
  return String((await platform.gateway('/pods', { stubId }))['containerId']);
}

/** Runs a command of a shell, without waiting for its end. @returns its pid */
export async function startIn(platform: Platform, containerId: string, command: string): Promise<number> {
  return (await platform.gateway<Ended>(`/pods/${containerId}/exec`, { command })).pid;
}

/** Runs a command of a shell to its end. */
export async function runIn(platform: Platform, containerId: string, command: string): Promise<Ended> {
  const ended = await platform.gateway<Ended>(`/pods/${containerId}/exec`, { command, wait: true });
  expect(ended.done, `${command} ended`).toBe(true);
  return ended;
}

/** Asks for the end of a container. @returns false when it was not there */
export async function stopSandbox(platform: Platform, containerId: string): Promise<boolean> {
  const answer = await platform.call(`/api/v1/gateway/containers/${containerId}/stop`, { body: {} });
  return answer.status === 200 && jsonOf(answer)['ok'] === true;
}

/** Ids of the workspace's containers that have not ended. */
export async function liveIds(platform: Platform): Promise<readonly string[]> {
  const { containers } = await platform.gateway<{ containers: { containerId: string }[] }>('/containers');
  return containers.map(({ containerId }) => containerId);
}

/** Longshore's ids of the containers in Docker, ended ones too. */
export async function idsInDocker(platform: Platform): Promise<readonly string[]> {
  return (await platform.containers()).map(({ Labels, Id }) => Labels['io.longshore.container'] ?? Id);
}

/** Waits until nothing of those containers is left: rows that have not ended, containers, sockets, files, mounts. */
export async function nothingLeft(platform: Platform, ids: readonly string[], timeoutMs = 90_000): Promise<void> {
  let left: readonly string[] = [];
  const names = ids.flatMap((id) => [id, ...EPOCHS.map((epoch) => shortIdOf(id, epoch))]);
  const agentDir = join(platform.dataDir, 'agent');
  const places = async (): Promise<readonly string[]> => [
    ...(await liveIds(platform)),
    ...(await idsInDocker(platform)),
    ...['s', 'views'].flatMap((folder) => readdirSync(join(agentDir, folder)).map((name) => `${folder}/${name}`)),
    ...readFileSync('/proc/self/mounts', 'utf8').split('\n'),
  ];
  await waitFor(
    async () => {
      left = (await places()).filter((place) => names.some((name) => place.includes(name)));
      return left.length === 0;
    },
    'nothing is left',
    timeoutMs,
  ).catch((error: unknown) => {
    throw new Error(`left: ${left.slice(0, 20).join(', ')}`, { cause: error });
  });
}

/** Process of the container's supervisor on this machine. */
export async function supervisorPid(platform: Platform, containerId: string): Promise<number> {
  const found = (await platform.containers()).find(({ Labels }) => Labels['io.longshore.container'] === containerId);
  if (found === undefined) throw new Error(`${containerId} is not in Docker`);
  const { State } = await platform.engine.client.getContainer(found.Id).inspect();
  // Docker's init is the first process.
  const children = execFileSync('ps', ['-o', 'pid=', '--ppid', String(State.Pid)], { encoding: 'utf8' });
  return Number(children.trim().split(/\s+/)[0]);
}
