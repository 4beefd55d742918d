// Streams of the engine that last: the output of a container, and events.
import type { Readable } from 'node:stream';
import { LogDemultiplexer } from '../lines.ts';
import type { ContainerRuntime, EndMemory, EngineEvent } from '../runtime.ts';
import { LABELS } from '../runtime.ts';
import type { EngineClient } from './client.ts';
import type { PastEvent } from './past-events.ts';
import { memoryOfEnd, pastEvent } from './past-events.ts';
import { withoutBlank } from './own-labels.ts';
import { drain } from './streams.ts';

/** An engine that stops answers no new connection; the tasks of the container wait for this answer. */
const END_MEMORY_MS = 2000;

export type OutputCalls = Pick<ContainerRuntime, 'followLogs' | 'watch' | 'endMemory' | 'watchNetworks'>;

export function outputCalls(engine: EngineClient): OutputCalls {
  return {
    async followLogs(
      dockerId: string,
      since: string,
      onLine: (stream: 'stdout' | 'stderr', line: string, position: string) => void,
      signal: AbortSignal,
    ): Promise<void> {
      const stream = (await engine.docker.getContainer(dockerId).logs({
        follow: true,
        stdout: true,
        stderr: true,
        timestamps: true,
        ...(since === '' ? {} : { since: unixTime(since) as unknown as number }),
        abortSignal: signal,
      })) as unknown as Readable;
      const demultiplexer = new LogDemultiplexer(onLine, since);
      await drain(stream, signal, (data) => demultiplexer.push(data));
      demultiplexer.end();
    },

    async watch(sinceMs: number, onEvent: (event: EngineEvent) => void, signal: AbortSignal): Promise<void> {
      const stream = (await engine.docker.getEvents({
        since: Math.floor(sinceMs / 1000),
        filters: { type: ['container'], event: ['kill', 'die', 'oom', 'destroy'], label: [`${LABELS.managed}=1`] },
        abortSignal: signal,
      })) as unknown as Readable;
      let rest = '';
      await drain(stream, signal, (data) => {
        const lines = (rest + data.toString('utf8')).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) {
          const event = parseEvent(line);
          if (event !== undefined) onEvent(event);
        }
      });
    },

    async endMemory(dockerId: string): Promise<EndMemory> {
      const events = await engine.call('events', (abortSignal) => pastEvents(engine, abortSignal), END_MEMORY_MS);
      return memoryOfEnd(events, dockerId);
    },

    async watchNetworks(onMade: () => void, signal: AbortSignal): Promise<void> {
      const stream = (await engine.docker.getEvents({
        filters: { type: ['network'], event: ['create'] },
        abortSignal: signal,
      })) as unknown as Readable;
      await drain(stream, signal, () => onMade());
    },
  };
}

/** All events that the engine still has in memory. */
async function pastEvents(engine: EngineClient, abortSignal: AbortSignal): Promise<readonly PastEvent[]> {
  const stream = (await engine.docker.getEvents({
    since: 0,
    // A whole second would leave out the end itself. The engine takes fractions.
    until: (Date.now() / 1000).toFixed(3) as unknown as number,
    abortSignal,
  })) as unknown as Readable;
  const pieces: Buffer[] = [];
  await drain(stream, abortSignal, (data) => void pieces.push(data));
  return Buffer.concat(pieces).toString('utf8').split('\n').flatMap(pastEvent);
}

/** A time as the engine wants it: seconds, a point, nine digits. */
function unixTime(position: string): string {
  const seconds = Math.floor(Date.parse(position) / 1000);
  return `${seconds}.${/\.(\d{9})Z$/.exec(position)?.[1] ?? '000000000'}`;
}

function parseEvent(line: string): EngineEvent | undefined {
  if (line.trim() === '') return undefined;
  let parsed: unknown;
  try {
    parsed = JSON.parse(line);
  } catch {
    return undefined;
  }
  const event = parsed as {
    Action?: unknown;
    Actor?: { ID?: unknown; Attributes?: Record<string, string> };
    timeNano?: unknown;
  };
  const action = event.Action;
  if (action !== 'kill' && action !== 'die' && action !== 'oom' && action !== 'destroy') return undefined;
  if (typeof event.Actor?.ID !== 'string') return undefined;
  const labels = withoutBlank(event.Actor.Attributes ?? {});
  const code = Number(action === 'die' ? (labels['exitCode'] ?? Number.NaN) : Number.NaN);
  return {
    action,
    dockerId: event.Actor.ID,
    labels,
    atMs: typeof event.timeNano === 'number' ? event.timeNano / 1e6 : Date.now(),
    exitCode: Number.isInteger(code) ? code : undefined,
  };
}
