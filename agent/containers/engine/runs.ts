// Programs that run to their end: one in a container that is there, and a helper container of its own.
import type { Readable } from 'node:stream';
import { LogDemultiplexer } from '../lines.ts';
import type { ContainerRuntime, CreateContainer } from '../runtime.ts';
import { EngineError } from '../runtime.ts';
import type { EngineClient } from './client.ts';
import { CALL_DEADLINE_MS } from './client.ts';
import type { ContainerCalls } from './containers.ts';
import type { OutputCalls } from './output.ts';
import { statusOf, translate } from './errors.ts';
import { drain } from './streams.ts';

/** Time to read the printed lines of a helper that missed its deadline. */
const LATE_LINES_MS = 1000;
const MAX_EXEC_OUTPUT = 64 * 1024;

export function runCalls(
  engine: EngineClient,
  containers: Pick<ContainerCalls, 'create' | 'start' | 'remove'>,
  output: Pick<OutputCalls, 'followLogs'>,
): Pick<ContainerRuntime, 'exec' | 'execDetached' | 'execState' | 'execsOf' | 'runOnce'> {
  const calls = {
    async execDetached(dockerId: string, command: readonly string[], env: readonly string[]): Promise<string> {
      try {
        const exec = await engine.call('exec', (abortSignal) =>
          engine.docker.getContainer(dockerId).exec({ Cmd: [...command], Env: [...env], abortSignal }),
        );
        // The answer comes once the program has begun, or could not.
        await engine.call('exec', (abortSignal) => exec.start({ Detach: true, abortSignal }));
        return exec.id;
      } catch (error) {
        throw translate(error, 'cannot start a program in the container');
      }
    },

    async execState(execId: string): Promise<{ readonly running: boolean; readonly exitCode: number } | undefined> {
      try {
        const { Running, ExitCode } = await engine.call('exec', () => engine.questions.getExec(execId).inspect());
        return { running: Running, exitCode: ExitCode ?? 0 };
      } catch (error) {
        if (statusOf(error) === 404) return undefined;
        throw translate(error, 'cannot look at a program in a container');
      }
    },

    async execsOf(dockerId: string): Promise<readonly (readonly string[])[]> {
      try {
        const { ExecIDs } = (await engine.call('inspect', () => engine.questions.getContainer(dockerId).inspect())) as {
          readonly ExecIDs?: readonly string[] | null;
        };
        const found = await Promise.all((ExecIDs ?? []).map((id) => engine.questions.getExec(id).inspect()));
        return found.flatMap(({ Running, ProcessConfig }) =>
          Running ? [[ProcessConfig.entrypoint, ...(ProcessConfig.arguments ?? [])]] : [],
        );
      } catch (error) {
        if (statusOf(error) === 404) return [];
        throw translate(error, 'cannot look at the programs in a container');
      }
    },
  };
  return {
    ...calls,

    async exec(
      dockerId: string,
      command: readonly string[],
      deadlineMs: number,
    ): Promise<{ readonly exitCode: number; readonly output: string }> {
      // This call is outside the limit: the container's image determines how long the program runs.
      return engine.timed(
        'exec',
        async (abortSignal) => {
          const exec = await engine.docker
            .getContainer(dockerId)
            .exec({ Cmd: [...command], AttachStdout: true, AttachStderr: true, abortSignal });
          const stream = (await exec.start({ abortSignal })) as unknown as Readable;
          let output = '';
          const demultiplexer = new LogDemultiplexer((_stream, line) => {
            if (output.length < MAX_EXEC_OUTPUT) output += `${line}\n`;
          });
          await drain(stream, abortSignal, (data) => demultiplexer.push(data));
          demultiplexer.end();
          return { exitCode: (await exec.inspect({ abortSignal })).ExitCode ?? 0, output };
        },
        deadlineMs,
      );
    },

    async runOnce(
      spec: CreateContainer,
      deadlineMs: number,
      onLine?: (line: string) => void,
      atEnd?: (dockerId: string) => Promise<void>,
    ): Promise<number> {
      const dockerId = await containers.create(spec);
      try {
        await containers.start(dockerId);
        // This call is outside the limit: waiting lasts as long as the helper's work.
        const overdue = (): EngineError =>
          new EngineError('overdue', `container ${spec.name} did not end in ${deadlineMs} ms`);
        const tellLines = async (ms: number): Promise<void> => {
          if (onLine === undefined) return;
          await output.followLogs(dockerId, '', (_stream, line) => onLine(line), AbortSignal.timeout(ms));
        };
        let result: { StatusCode: number };
        try {
          result = (await engine.timed(
            'wait',
            (abortSignal) => engine.docker.getContainer(dockerId).wait({ abortSignal }),
            deadlineMs,
            overdue,
          )) as { StatusCode: number };
        } catch (error) {
          await tellLines(LATE_LINES_MS).catch(() => undefined);
          throw error;
        }
        await tellLines(CALL_DEADLINE_MS);
        if (result.StatusCode === 0) await atEnd?.(dockerId);
        return result.StatusCode;
      } finally {
        await containers.remove(dockerId);
      }
    },
  };
}
