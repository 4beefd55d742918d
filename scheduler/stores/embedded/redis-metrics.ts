// Health of Redis: whether the connections stand, and how long commands take. On a busy connection only some commands
// are timed, so that the measurement costs next to nothing.
import type { Redis } from 'ioredis';
import type { Clock } from '#shared/clock.ts';
import type { Registry } from '#shared/metrics.ts';
import { FAST_BUCKETS, Gauge, Histogram } from '#shared/metrics.ts';

export interface WatchedRedis {
  /** Purpose of the connection: `tasks`, `control`. */
  readonly role: string;
  readonly client: Redis;
  /** Share of commands that is timed: one in so many. */
  readonly oneIn: number;
}

type Send = Redis['sendCommand'];

export function watchRedis(registry: Registry, clock: Clock, watched: readonly WatchedRedis[]): void {
  const registers = [registry];
  new Gauge({
    name: 'longshore_scheduler_redis_up',
    help: '1 while every connection to Redis stands.',
    registers,
    collect() {
      this.set(watched.every(({ client }) => client.status === 'ready') ? 1 : 0);
    },
  });
  const duration = new Histogram({
    name: 'longshore_scheduler_redis_command_duration_seconds',
    help: 'From a command being sent to its answer, for a sample of the commands, by what the connection is for.',
    labelNames: ['class'],
    buckets: FAST_BUCKETS,
    registers,
  });
  for (const { role, client, oneIn } of watched) {
    const send: Send = client.sendCommand.bind(client);
    let sent = 0;
    client.sendCommand = (command, stream) => {
      sent += 1;
      if (sent % oneIn === 0) {
        const startedMs = clock.monotonicMs();
        const answered = (): void => duration.observe({ class: role }, (clock.monotonicMs() - startedMs) / 1000);
        command.promise.then(answered, answered);
      }
      return send(command, stream);
    };
  }
}
