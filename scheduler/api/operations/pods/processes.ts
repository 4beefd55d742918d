// Programs in a container: started, watched and ended.
import {
  PodConnectResponse,
  PodDone,
  PodExecRequest,
  PodExecResponse,
  PodOutputRequest,
  PodProcessRequest,
  PodProcessesResponse,
  PodRequest,
  PodStatusResponse,
  PodStderrResponse,
  PodStdoutResponse,
} from '#shared/api/pods.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import { AppError } from '#shared/errors.ts';
import type { ReachedContainer } from '../../../fleet/inside/access.ts';
import type { Program } from '../../../fleet/inside/messages.ts';
import type { ContainerRow } from '../../../stores/store/queries/containers.ts';
import { EXEC_MODE, outputText } from './output-text.ts';
import { podOperation } from './pod-operation.ts';
import type { PodParts } from './pod-operation.ts';
import type { Operation, Origin } from '../operation.ts';

/** Time for a container to come to run, for who connects to it. */
const CONNECT_WITHIN_MS = 600_000;
/** Longest wait of `exec` for the end of its program: clients give up after 30 s. Source: decision 0194. */
const EXEC_WAITS_MS = 25_000;
/** Time for the answer behind a wait. */
const ANSWER_MS = 15_000;
const MOST_OUTPUT_BYTES = 1024 * 1024;
const MOST_COMMAND = 128 * 1024;
const MOST_VARIABLES = 1000;

export function processOperations(parts: PodParts): readonly Operation[] {
  const { inside } = parts;
  /**
   * Everything of a stream that is kept, which published clients compare with what they have read.
   * @param fresh - only what no such reading has given. A reading that is repeated under its id gives the same.
   */
  const outputOf = async (
    container: ReachedContainer,
    { pid, stream, fresh }: { readonly pid: number; readonly stream: 'stdout' | 'stderr'; readonly fresh?: Origin },
  ): Promise<string> => {
    const how = fresh === undefined ? { from: 0 } : { from: -1, text: true, ...repeated(fresh) };
    const asked = { pid, stream, mostBytes: MOST_OUTPUT_BYTES, ...how };
    const { answer, bytes } = await inside.read(container, 'output', asked, MOST_OUTPUT_BYTES);
    return outputText(bytes, { isCutBefore: answer.lostBytes > 0, isOver: fresh !== undefined || !answer.running });
  };
  /** The end of a program with its output, if it comes within that time. */
  const ended = async (container: ReachedContainer, pid: number, timeoutMs: number) => {
    const state = await inside.ask(container, 'wait', { pid, timeoutMs }, { withinMs: timeoutMs + ANSWER_MS });
    if (state.running) return { pid, done: false, exitCode: -1, stdout: '', stderr: '' };
    const stdout = await outputOf(container, { pid, stream: 'stdout' });
    const stderr = await outputOf(container, { pid, stream: 'stderr' });
    return { pid, done: true, exitCode: exitCodeOf(state), stdout, stderr };
  };
  return [
    podOperation(parts, {
      name: 'SandboxConnect',
      route: 'POST /connect',
      request: PodRequest,
      response: PodConnectResponse,
      runningWithinMs: CONNECT_WITHIN_MS,
      withinMs: CONNECT_WITHIN_MS + 30_000,
      handle: async ({ stubId }) => ({ stubId }),
    }),
    podOperation(parts, {
      name: 'SandboxExec',
      route: 'POST /exec',
      request: PodExecRequest,
      response: PodExecResponse,
      problem: ({ command, env }) => commandProblem(command) ?? variablesProblem(env),
      handle: async (container, { command, cwd, env, wait }, origin) => {
        const from = performance.now();
        const shell = [...EXEC_MODE, command];
        const start = { command: shell, cwd, env: { ...env }, terminal: null, attach: false, ...repeated(origin) };
        const { pid } = await inside.ask(container, 'start', start);
        const none = { pid, done: false, exitCode: -1, stdout: '', stderr: '' };
        if (!wait) return none;
        const timeoutMs = Math.max(0, Math.ceil(EXEC_WAITS_MS - (performance.now() - from)));
        return ended(container, pid, timeoutMs).catch((error: unknown) => {
          // The program runs: without its number nobody could look for it.
          if (error instanceof AppError) return none;
          throw error;
        });
      },
    }),
    podOperation(parts, {
      name: 'SandboxStatus',
      route: 'GET /status',
      request: PodProcessRequest,
      response: PodStatusResponse,
      // Without a program it is the container's own.
      ofRow: (row, { pid }) => (pid === 0 ? stateOf(row) : undefined),
      problem: ({ pid }) => (pid === 0 ? undefined : pidProblem({ pid })),
      handle: async (container, { pid }) => {
        const state = await inside.ask(container, 'wait', { pid, timeoutMs: 0 });
        return { status: state.running ? 'running' : 'exited', exitCode: exitCodeOf(state) };
      },
    }),
    podOperation(parts, {
      name: 'SandboxStdout',
      route: 'GET /stdout',
      request: PodOutputRequest,
      response: PodStdoutResponse,
      problem: pidProblem,
      handle: async (container, { pid, onlyNew }, origin) => ({
        stdout: await outputOf(container, { pid, stream: 'stdout', ...(onlyNew ? { fresh: origin } : {}) }),
      }),
    }),
    podOperation(parts, {
      name: 'SandboxStderr',
      route: 'GET /stderr',
      request: PodOutputRequest,
      response: PodStderrResponse,
      problem: pidProblem,
      handle: async (container, { pid, onlyNew }, origin) => ({
        stderr: await outputOf(container, { pid, stream: 'stderr', ...(onlyNew ? { fresh: origin } : {}) }),
      }),
    }),
    podOperation(parts, {
      name: 'SandboxKill',
      route: 'POST /kill',
      request: PodProcessRequest,
      response: PodDone,
      problem: pidProblem,
      handle: async (container, { pid }) => {
        await inside.ask(container, 'kill', { pid });
        return {};
      },
    }),
    podOperation(parts, {
      name: 'SandboxListProcesses',
      route: 'GET /processes',
      request: PodRequest,
      response: PodProcessesResponse,
      handle: async (container) => {
        const { processes } = await inside.ask(container, 'processes', {});
        return { processes: processes.map(shown) };
      },
    }),
  ];
}

const repeated = ({ repeatId }: Origin): { readonly id?: string } => (repeatId === undefined ? {} : { id: repeatId });

/** The state of a container as that of a program. */
function stateOf({ state, exitCode }: ContainerRow): { readonly status: string; readonly exitCode: number } {
  if (isTerminalContainer(state)) return { status: 'exited', exitCode: exitCodeOf({ running: false, exitCode }) };
  const isBefore = state === 'PENDING' || state === 'ASSIGNED' || state === 'STARTING';
  return { status: isBefore ? 'pending' : 'running', exitCode: -1 };
}

/** Clients take a negative number for "it runs": an end by a signal has 128 more than the signal's number. */
function exitCodeOf({ running, exitCode }: Pick<Program, 'running' | 'exitCode'>): number {
  if (running) return -1;
  return exitCode === null ? 255 : exitCode < 0 ? 128 - exitCode : exitCode;
}

/** A command that `exec` gave to a shell is shown as it came; any other, as its words. */
function shown(program: Program) {
  const { pid, command, cwd, env, running } = program;
  const isShell = command.length === 3 && EXEC_MODE.every((word, index) => command[index] === word);
  const cmd = isShell ? (command[2] ?? '') : command.join(' ');
  return { pid, cmd, cwd, env: [...env], running, exitCode: exitCodeOf(program) };
}

function commandProblem(command: string): string | undefined {
  if (command.trim() === '') return 'command is empty';
  return Buffer.byteLength(command) > MOST_COMMAND ? `command has more than ${MOST_COMMAND / 1024} KiB` : undefined;
}

function variablesProblem(env: Readonly<Record<string, string>>): string | undefined {
  const names = Object.keys(env);
  if (names.length > MOST_VARIABLES) return `env has more than ${MOST_VARIABLES} variables`;
  const wrong = names.find((name) => name === '' || name.includes('=') || name.includes('\0'));
  return wrong === undefined ? undefined : `env: ${JSON.stringify(wrong.slice(0, 60))} is no name of a variable`;
}

const pidProblem = ({ pid }: { readonly pid: number }): string | undefined =>
  pid >= 1 && pid <= 2 ** 31 ? undefined : 'pid is missing, or no number of a process';
