// The program of a pod or sandbox, as a request for its stub names it. A text is a refusal, and names the field. Pure.
import type { GetOrCreateStubRequest, ReadinessProbe } from '#shared/api/stubs.ts';
import type { PodConfig, ReadinessProbeConfig } from '../../domain/stub-config.ts';
import { quoted } from './refusals.ts';

const MAX_PORTS = 20;
const MAX_PORT = 65_535;
const MAX_ARGUMENTS = 256;
const MAX_COMMAND_BYTES = 64 * 1024;
const MAX_PATH = 2_048;
const PROBE_TYPES = ['http', 'tcp', 'command'] as const;
const PROBE_SECONDS = { min: 0.1, max: 300 };
const DEFAULT_INTERVAL_S = 1;
const DEFAULT_TIMEOUT_S = 5;

/** Routes by which engines of models tell that they serve. Source: reference of the inference API, §9. */
const ENGINE_PATHS = ['/v1/models', '/health', '/server_info', '/get_model_info'] as const;

/** @param servesModel - without a probe, the engine's own routes tell when it is ready */
export function normalisePod(request: GetOrCreateStubRequest, servesModel = false): PodConfig | string {
  const { entrypoint, ports } = request;
  const problem = commandProblem('entrypoint', entrypoint) ?? portsProblem(ports);
  if (problem !== undefined) return problem;
  const ofEngine = servesModel ? engineProbe(ports) : undefined;
  const probe = request.readinessProbe === null ? ofEngine : normaliseProbe(request.readinessProbe, ports);
  if (typeof probe === 'string') return probe;
  return { entrypoint, ports, ...(probe === undefined ? {} : { readinessProbe: probe }) };
}

function engineProbe([port]: readonly number[]): ReadinessProbeConfig | undefined {
  if (port === undefined) return undefined;
  const [path, ...morePaths] = ENGINE_PATHS;
  const times = { intervalSeconds: DEFAULT_INTERVAL_S, timeoutSeconds: DEFAULT_TIMEOUT_S };
  return { type: 'http', port, path, morePaths, command: [], ...times };
}

function portsProblem(ports: readonly number[]): string | undefined {
  if (ports.length > MAX_PORTS) return `ports must have at most ${MAX_PORTS} entries`;
  for (const [index, port] of ports.entries()) {
    if (!isPort(port)) return `ports[${index}] must be from 1 to ${MAX_PORT}, got ${port}`;
    if (ports.indexOf(port) !== index) return `ports[${index}] repeats ${port}`;
  }
  return undefined;
}

const isPort = (port: number): boolean => port >= 1 && port <= MAX_PORT;

function commandProblem(field: string, command: readonly string[]): string | undefined {
  if (command.length > MAX_ARGUMENTS) return `${field} must have at most ${MAX_ARGUMENTS} entries`;
  if (command.reduce((sum, part) => sum + Buffer.byteLength(part), 0) > MAX_COMMAND_BYTES)
    return `${field} must have at most ${MAX_COMMAND_BYTES} bytes in all`;
  const zero = command.findIndex((part) => part.includes('\0'));
  if (zero !== -1) return `${field}[${zero}] must not hold a zero byte`;
  return command.length > 0 && command[0] === '' ? `${field}[0] must name a program` : undefined;
}

function normaliseProbe(asked: ReadinessProbe, ports: readonly number[]): ReadinessProbeConfig | string {
  const field = 'readinessProbe';
  const meant = asked.command.length > 0 ? 'command' : asked.path === '' ? 'tcp' : 'http';
  const type = PROBE_TYPES.find((one) => one === (asked.type === '' ? meant : asked.type));
  if (type === undefined) return `${field}.type must be ${PROBE_TYPES.join(', ')}, got ${quoted(asked.type)}`;
  const intervalSeconds = asked.intervalSeconds === 0 ? DEFAULT_INTERVAL_S : asked.intervalSeconds;
  const timeoutSeconds = asked.timeoutSeconds === 0 ? DEFAULT_TIMEOUT_S : asked.timeoutSeconds;
  for (const [name, seconds] of [
    ['intervalSeconds', intervalSeconds],
    ['timeoutSeconds', timeoutSeconds],
  ] as const) {
    const { min, max } = PROBE_SECONDS;
    if (!(seconds >= min && seconds <= max)) return `${field}.${name} must be from ${min} to ${max}, got ${seconds}`;
  }
  const times = { intervalSeconds, timeoutSeconds };
  if (type === 'command') {
    if (asked.command.length === 0) return `${field}.command must name a program`;
    return (
      commandProblem(`${field}.command`, asked.command) ?? { type, port: 0, path: '', command: asked.command, ...times }
    );
  }
  const port = asked.port === 0 ? (ports[0] ?? 0) : asked.port;
  if (!isPort(port)) return `${field}.port must be from 1 to ${MAX_PORT}, got ${port}`;
  const path = asked.path === '' ? '/' : asked.path;
  if (type === 'http' && !(path.length <= MAX_PATH && /^\/[\x21-\x7e]*$/.test(path)))
    return `${field}.path must begin with a slash and have no blanks, got ${quoted(path)}`;
  return { type, port, path: type === 'http' ? path : '', command: [], ...times };
}
