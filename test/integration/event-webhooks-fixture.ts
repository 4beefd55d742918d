// Webhooks on real databases, with real receivers: the parts of a scheduler that deliver, and short ways to use them.
import { afterAll, beforeAll } from 'vitest';
import { AddressRules } from '#shared/address-rules.ts';
import { systemClock } from '#shared/clock.ts';
import type { TaskId, WebhookId, WorkspaceId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { Registry } from '#shared/metrics.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { webhookById } from '#scheduler/stores/store/queries/webhooks.ts';
import type { WebhookRow } from '#scheduler/stores/store/queries/webhooks.ts';
import { EventWebhookMetrics } from '#scheduler/tasks/event-webhooks/metrics.ts';
import { WebhookPump } from '#scheduler/tasks/event-webhooks/pump.ts';
import type { PumpParts } from '#scheduler/tasks/event-webhooks/pump.ts';
import { Receivers } from '#scheduler/tasks/event-webhooks/receivers.ts';
import { WebhookSecrets } from '#scheduler/tasks/event-webhooks/secrets.ts';
import { WebhookService } from '#scheduler/tasks/event-webhooks/service.ts';
import type { WebhookFields } from '#scheduler/tasks/event-webhooks/service.ts';
import { Lookups } from '#scheduler/tasks/webhooks/lookups.ts';
import { EventWriter } from '#scheduler/workspaces/events/writer.ts';
import type { EventGiven } from '#scheduler/workspaces/events/writer.ts';
import { createSealer } from '#scheduler/workspaces/secrets/seal.ts';
import { Receiver } from '../helpers/receiver.ts';
import type { Received } from '../helpers/receiver.ts';
import { aDb, aWorkspace } from './store-fixture.ts';
import type { KINDS, OpenedDb } from './store-fixture.ts';

export const quiet = createLog({ name: 'test', level: 'silent' });
export const KEY = Buffer.alloc(32, 7);
export const sealer = createSealer(KEY);
/** Long enough for a receiver on a busy machine. */
const TRY_MS = 1_500;
const MOST_WEBHOOKS = 20;

export interface Pumped {
  readonly pump: WebhookPump;
  readonly metrics: EventWebhookMetrics;
  readonly stop: () => Promise<void>;
}

/** The parts of a scheduler that deliver, on a database. */
export function worldOf(db: Db, allow: string) {
  const rules = AddressRules.read(allow);
  if (!(rules instanceof AddressRules)) throw new Error(rules.wrong);
  const writer = new EventWriter();
  const open: { close(): Promise<void> }[] = [];
  const receivers = (tryMs = TRY_MS): Receivers => {
    const made = new Receivers({
      rules,
      lookups: new Lookups(),
      monotonicMs: () => systemClock.monotonicMs(),
      connections: 8,
      tryMs,
    });
    open.push(made);
    return made;
  };
  const secrets = new WebhookSecrets(db, sealer, systemClock);
  const service = new WebhookService({
    db,
    events: writer,
    rules,
    receivers: receivers(),
    secrets,
    metrics: new EventWebhookMetrics(new Registry()),
    clock: systemClock,
    mostOf: () => MOST_WEBHOOKS,
  });
  const pumps: Pumped[] = [];
  return {
    writer,
    service,
    secrets,
    receivers,
    /** A scheduler that leads. */
    pump: (over: Partial<PumpParts> = {}): Pumped => {
      const metrics = new EventWebhookMetrics(new Registry());
      const pump = new WebhookPump({
        db,
        receivers: receivers(),
        secrets,
        metrics,
        clock: systemClock,
        log: quiet,
        leader: { isLeader: () => true, onChange: () => () => undefined },
        sweepMs: 100,
        ...over,
      });
      writer.onWritten((workspaceId, lastSeq) => pump.wake(workspaceId, lastSeq));
      pump.start();
      const made = { pump, metrics, stop: () => pump.stop() };
      pumps.push(made);
      return made;
    },
    stopPumps: async () => {
      for (const one of pumps.splice(0)) await one.stop();
    },
    stop: async () => {
      for (const one of pumps) await one.stop();
      for (const one of open) await one.close();
    },
  };
}

/** A database, a receiver and a world for the tests of the calling `describe`, with what they do. */
export function webhooksOn(kind: (typeof KINDS)[number]) {
  let opened: OpenedDb;
  let receiver: Receiver;
  let world: ReturnType<typeof worldOf>;
  let ws: WorkspaceId;
  let counter = 0;
  beforeAll(async () => {
    opened = await aDb(kind);
    receiver = await new Receiver().start();
    world = worldOf(opened.db, '127.0.0.0/8');
    ({ id: ws } = await aWorkspace(opened.db));
  });
  afterAll(async () => {
    await world.stop();
    await receiver.stop();
    await opened.stop();
  });

  const path = (): string => `/hook-${(counter += 1)}`;
  const hook = async (
    at: string,
    fields: Omit<WebhookFields, 'url'> = {},
    workspaceId = ws,
  ): Promise<{ readonly webhook: WebhookRow; readonly secret: string }> =>
    await world.service.create(workspaceId, { url: receiver.url(at), ...fields });
  const now = async (id: WebhookId, workspaceId = ws): Promise<WebhookRow> => {
    const row = await webhookById(opened.db, workspaceId, id);
    if (row === undefined) throw new Error('there is no such webhook');
    return row;
  };
  const taskEvent = (taskId: TaskId, n: number, over: Partial<EventGiven> = {}): EventGiven => ({
    workspaceId: ws,
    type: 'task.updated',
    atMs: Date.now(),
    taskId,
    data: { id: taskId, n },
    ...over,
  });
  const write = (...events: readonly EventGiven[]): Promise<void> =>
    world.writer.transaction(opened.db, (_, emit) => {
      for (const event of events) emit(event);
      return Promise.resolve();
    });
  const numberIn = ({ body }: Received): number => (JSON.parse(body) as { data: { n: number } }).data.n;
  const numbersAt = (at: string): readonly number[] => receiver.at(at).map(numberIn);
  const sortedAt = (at: string): readonly number[] => numbersAt(at).toSorted((a, b) => a - b);
  const ofTask = (at: string, taskId: TaskId): readonly number[] =>
    receiver
      .at(at)
      .filter(({ body }) => body.includes(taskId))
      .map(numberIn);
  const deliveries = (id: WebhookId, workspaceId = ws) =>
    world.service.deliveries(workspaceId, id, { limit: 1_000, after: undefined, state: undefined });
  const running = async (over: Partial<PumpParts>, run: (pumped: Pumped) => Promise<void>): Promise<void> => {
    const pumped = world.pump(over);
    try {
      await run(pumped);
    } finally {
      await world.stopPumps();
      await opened.db.query('delete from webhooks');
    }
  };

  return {
    get opened() {
      return opened;
    },
    get receiver() {
      return receiver;
    },
    get world() {
      return world;
    },
    get ws() {
      return ws;
    },
    path,
    hook,
    now,
    taskEvent,
    write,
    numberIn,
    numbersAt,
    sortedAt,
    ofTask,
    deliveries,
    running,
  };
}
