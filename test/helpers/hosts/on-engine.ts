/**
 * Runs a command beside a Docker Engine whose programs are in a folder of their own. The engine, its containerd and the
 * command are in one network namespace. Two engines in one namespace remove each other's rules of the packet filter, so
 * the command's servers are reachable in there alone. Everything goes when the command has ended, however it does
 * (keeper.ts). scripts/setup/named-engine.mjs calls it.
 */
import { spawn } from 'node:child_process';
import { delimiter } from 'node:path';
import { SimulatedNetwork, whyNoHosts } from './network.ts';

/** @returns the exit code of the command */
export async function onEngine(folder: string, command: readonly string[]): Promise<number> {
  if (whyNoHosts !== undefined) throw new Error('another engine needs root, for a network namespace of its own');
  // Engines of simulated hosts are found by it, too.
  process.env['PATH'] = `${folder}${delimiter}${process.env['PATH'] ?? ''}`;
  let stopped: NodeJS.Signals | undefined;
  let pass = (_signal: NodeJS.Signals): void => undefined;
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.on(signal, () => {
      stopped = signal;
      pass(signal);
    });
  const network = await SimulatedNetwork.up(1, undefined, () => ({ ownContainerd: true }), undefined, true);
  try {
    const [host] = network.hosts;
    if (host === undefined || stopped !== undefined) return 1;
    const { LS_TEST_ENGINE: _done, ...env } = process.env;
    const child = spawn('nsenter', [`--net=/run/netns/${host.name}`, ...command], {
      env: { ...env, DOCKER_HOST: `unix://${host.socket}` },
      stdio: 'inherit',
    });
    pass = (signal) => void child.kill(signal);
    return await new Promise<number>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (code) => resolve(code ?? 1));
    });
  } finally {
    await network.down();
  }
}

if (process.argv[1] === import.meta.filename) {
  const [folder = '', ...command] = process.argv.slice(2);
  process.exitCode = await onEngine(folder, command);
}
