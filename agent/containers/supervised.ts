// Pods and sandboxes: their first program is a supervisor, which needs nothing of the image
// (docs/supervisor-protocol.md). Pure.
import type { ContainerSpec__Output } from '#shared/protocol/generated/messages.ts';
import { AppError } from '#shared/errors.ts';
import type { ImageConfig } from './runtime.ts';

export const BASE_TARGET = '/opt/longshore/base';

/** The Python of the base, by its own loader and libraries; arguments follow. */
export const pythonOfBase: readonly string[] = [
  `${BASE_TARGET}/ld.so`,
  '--library-path',
  `${BASE_TARGET}/lib`,
  `${BASE_TARGET}/python/bin/python3`,
  '-I',
  '-S',
];

/** Arguments of a Python that make it a supervisor. */
const SUPERVISOR = [
  '-c',
  "import sys; sys.path.insert(0, '/opt/longshore/python'); from longshore.supervisor.main import main; main()",
];

/** The first program of pods and sandboxes. */
export const SUPERVISOR_COMMAND: readonly string[] = [...pythonOfBase, ...SUPERVISOR];

/** The supervisor that is started later, by the Python of a handler's image. */
export const ADDED_SUPERVISOR_COMMAND: readonly string[] = ['python3', '-I', '-S', ...SUPERVISOR];

/** Whether a program's arguments are those of a supervisor. */
export const isSupervisorCommand = (command: readonly string[]): boolean => command.at(-1) === SUPERVISOR[1];

/** The variable with a supervisor's settings. */
export const SUPERVISOR_NAME = 'LONGSHORE_SUPERVISOR';

/** Rights of their programs: images start as root, and step down or install packages (decision 0192). */
export const SUPERVISED_CAPABILITIES = [
  'CHOWN',
  'DAC_OVERRIDE',
  'FOWNER',
  'FSETID',
  'KILL',
  'NET_BIND_SERVICE',
  'SETGID',
  'SETUID',
] as const;

/**
 * Variables by which a loader takes libraries into every program. Those of an image are for its own loader: the
 * supervisor's would not start with them, so that only programs get them.
 */
export const LOADER_VARIABLES = ['LD_PRELOAD', 'LD_AUDIT'] as const;

const MOST_WORDS = 1024;
const MOST_TEXT_BYTES = 64 * 1024;
const MOST_PORTS = 64;
/** A supervisor takes no more. */
const MOST_SLOTS = 1024;
const PROBE_TYPES = ['http', 'tcp', 'command'];
const PROBE_EVERY_MS = 500;
const PROBE_WITHIN_MS = 2000;

type Kinded = Pick<ContainerSpec__Output, 'kind' | 'stubType'>;

export const kindOf = ({ kind, stubType }: Kinded): string => kind || (stubType.split('/')[0] ?? '');

/** Whether the first program of a container is a supervisor. @param kind - of its stub */
export const isSupervised = (kind: string): boolean => kind === 'pod' || kind === 'sandbox';

/** Whether a container may call the platform. Code in sandboxes is often untrusted (decision 0193). */
export const hasCredential = (kind: string): boolean => kind !== 'sandbox';

/** @returns what is wrong with the fields that only pods and sandboxes have, naming the field */
export function supervisedProblem(spec: ContainerSpec__Output): string | undefined {
  const { entrypoint, ports, readinessProbe: probe } = spec;
  const problem = wordsProblem('spec.entrypoint', entrypoint);
  if (problem !== undefined) return problem;
  if (ports.length > MOST_PORTS) return `spec.ports has more than ${MOST_PORTS} entries`;
  const bad = ports.find((port) => !isPort(port));
  if (bad !== undefined) return `spec.ports: ${bad} is not a port`;
  if (probe === null) return undefined;
  if (!PROBE_TYPES.includes(probe.type)) return `spec.readiness_probe.type is not ${PROBE_TYPES.join(', ')}`;
  if (probe.type !== 'command' && !isPort(probe.port)) return `spec.readiness_probe.port ${probe.port} is not a port`;
  if (probe.type === 'command' && probe.command.length === 0) return 'spec.readiness_probe.command is empty';
  return (
    wordsProblem('spec.readiness_probe.command', probe.command) ??
    wordsProblem('spec.readiness_probe.more_paths', probe.morePaths)
  );
}

const isPort = (port: number): boolean => port >= 1 && port <= 65_535;

function wordsProblem(field: string, words: readonly string[]): string | undefined {
  if (words.length > MOST_WORDS) return `${field} has more than ${MOST_WORDS} words`;
  if (words.some((word) => word.includes('\0'))) return `${field} has a zero byte`;
  const bytes = words.reduce((sum, word) => sum + Buffer.byteLength(word), 0);
  return bytes > MOST_TEXT_BYTES ? `${field} has more than ${MOST_TEXT_BYTES} bytes` : undefined;
}

export interface SupervisedImage {
  readonly reference: string;
  readonly config: ImageConfig;
  /** The operator's base image. */
  readonly isBase: boolean;
}

/**
 * The value of `LONGSHORE_SUPERVISOR` for a first program.
 * @throws AppError `image_error` when neither stub nor image names a program
 */
export function supervisorSettings(
  containerId: string,
  spec: ContainerSpec__Output,
  image: SupervisedImage,
): Readonly<Record<string, unknown>> {
  const isSandbox = kindOf(spec) === 'sandbox';
  const entrypoint = spec.entrypoint.length > 0 || isSandbox ? spec.entrypoint : image.config.program;
  if (entrypoint.length === 0 && !isSandbox)
    throw new AppError('image_error', `image ${image.reference} names no program, and the pod has no entrypoint`);
  const { readinessProbe: probe, ports } = spec;
  return {
    entrypoint,
    cwd: programDirectory(spec, image),
    // A sandbox is ready at once: its programs come later.
    ports: isSandbox ? [] : ports,
    probe:
      probe === null
        ? null
        : {
            type: probe.type,
            port: probe.port,
            path: probe.path,
            morePaths: probe.morePaths,
            command: probe.command,
            intervalMs: probe.intervalMs || PROBE_EVERY_MS,
            timeoutMs: probe.timeoutMs || PROBE_WITHIN_MS,
          },
    slots: Math.min(MOST_SLOTS, spec.workers * Math.max(1, spec.concurrentRequests)),
    containerId,
    env: loaderVariables(spec, image.config),
  };
}

/**
 * Directory in which the first program starts; empty: the container's own, which is that of the code. A program that
 * a person names starts beside the person's files, unless the image has a directory of its own.
 */
function programDirectory(spec: ContainerSpec__Output, { config, isBase }: SupervisedImage): string {
  if (!hasCode(spec) || isBase) return '';
  const hasOwn = config.workingDir !== '' && config.workingDir !== '/';
  return hasOwn || spec.entrypoint.length === 0 ? config.workingDir || '/' : '';
}

function loaderVariables({ env }: ContainerSpec__Output, config: ImageConfig): Record<string, string> {
  const values: Record<string, string> = {};
  for (const name of LOADER_VARIABLES) {
    const ofImage = config.env.findLast((one) => one.startsWith(`${name}=`))?.slice(name.length + 1);
    const value = env[name] ?? ofImage;
    if (value !== undefined) values[name] = value;
  }
  return values;
}

/** The value of `LONGSHORE_SUPERVISOR` for a supervisor that is started later. */
export const addedSettings = (containerId: string): Readonly<Record<string, unknown>> => ({
  entrypoint: [],
  cwd: '',
  ports: [],
  probe: null,
  slots: 0,
  containerId,
  env: {},
});

export const hasCode = ({ code }: Pick<ContainerSpec__Output, 'code'>): boolean => (code?.objectId ?? '') !== '';
