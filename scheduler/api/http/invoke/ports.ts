// The port that a URL of a pod or sandbox names, and the part of its path that the program does not see.
import type { Target } from '../../../domain/stub-config.ts';
import { namingParts } from './path-form.ts';
import { Refusal } from './refusal.ts';

export interface ChosenPort {
  readonly port: number;
  readonly rootPath: string;
}

const PORT = /^[1-9][0-9]{0,4}$/;
const MAX_PORT = 65_535;

/** Reads a port; undefined: not one. */
export function readPort(text: string): number | undefined {
  const port = PORT.test(text) ? Number(text) : Infinity;
  return port <= MAX_PORT ? port : undefined;
}

export const portsOf = ({ config }: Pick<Target, 'config'>): readonly number[] => config.pod?.ports ?? [];

/**
 * The port of a path: `/pod/name/v3/8000/rest`, `/pod/id/…/8000`. A pod with one port needs none in its path. A number
 * in that place is a port for such a pod, too: a wrong one must not become a path of the right one.
 */
export function portInPath(path: string, target: Target): ChosenPort | Refusal {
  const segments = path.split('/');
  const length = namingParts(segments, target.stubId);
  const named = readPort(segments[length] ?? '');
  const ports = portsOf(target);
  const rootOf = (end: number): string => segments.slice(0, end).join('/');
  if (named !== undefined && ports.includes(named)) return { port: named, rootPath: rootOf(length + 1) };
  if (named !== undefined) return unlisted(named, ports);
  const [only] = ports;
  return only !== undefined && ports.length === 1 ? { port: only, rootPath: rootOf(length) } : noPort(ports);
}

/** The port of a host label. @param named - null: the label has none */
export function portInHost(named: number | null, target: Target): ChosenPort | Refusal {
  const ports = portsOf(target);
  const [only] = ports;
  if (named === null) return only !== undefined && ports.length === 1 ? { port: only, rootPath: '' } : noPort(ports);
  return ports.includes(named) ? { port: named, rootPath: '' } : unlisted(named, ports);
}

export function unlisted(port: number, ports: readonly number[]): Refusal {
  const known = ports.length === 0 ? 'it has none' : `it has ${ports.join(', ')}`;
  return new Refusal(404, 'error', `port ${port} is not a port of this stub: ${known}`);
}

function noPort(ports: readonly number[]): Refusal {
  if (ports.length === 0) return new Refusal(404, 'error', 'this pod has no ports: name them in `ports` of its stub');
  return new Refusal(404, 'error', `the URL names no port of this pod: it has ${ports.join(', ')}`);
}

export const NO_CONTAINER = new Refusal(503, 'error', 'no container of this pod runs: CreatePod makes one');
