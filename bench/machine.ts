// Describes the machine that figures were measured on: the facts
// that decide its speed, and nothing that identifies its owner.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { availableParallelism, cpus, release, totalmem } from 'node:os';

export interface MachineFacts {
  readonly cores: number;
  readonly processor: string;
  readonly memoryGiB: number;
  readonly kernel: string;
  /** Congestion control of TCP: BBR paces connections of loopback, too, which costs senders and receivers. */
  readonly tcp: string;
  readonly versions: Readonly<Record<string, string>>;
}

/** @param engineVersion - version of Docker, when a suite needs it */
export function machineFacts(engineVersion: string | undefined): MachineFacts {
  return {
    cores: availableParallelism(),
    processor: cpus()[0]?.model.trim() ?? 'unknown',
    memoryGiB: Math.round(totalmem() / 1024 ** 3),
    kernel: release().split('-', 1)[0] ?? '',
    tcp: congestionControl(),
    versions: {
      node: process.versions.node,
      ...(engineVersion === undefined ? {} : { docker: engineVersion }),
      redis: redisVersion(),
      bullmq: packageVersion('bullmq'),
      fastify: packageVersion('fastify'),
      autocannon: packageVersion('autocannon'),
    },
  };
}

/** The facts as one line for people. */
export function machineText(facts: MachineFacts): string {
  const versions = Object.entries(facts.versions).map(([name, version]) => `${name} ${version}`);
  return `${facts.cores} cores (${facts.processor}), ${facts.memoryGiB} GiB, kernel ${facts.kernel}, TCP ${facts.tcp}; ${versions.join(', ')}`;
}

function congestionControl(): string {
  try {
    return readFileSync('/proc/sys/net/ipv4/tcp_congestion_control', 'utf8').trim();
  } catch {
    return 'unknown';
  }
}

function redisVersion(): string {
  try {
    const text = execFileSync('redis-server', ['--version'], { encoding: 'utf8', timeout: 5_000 });
    return /v=(\S+)/.exec(text)?.[1] ?? 'unknown';
  } catch {
    return 'unknown';
  }
}

function packageVersion(name: string): string {
  const text = readFileSync(new URL(`../node_modules/${name}/package.json`, import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
