// The host in which each machine's agent runs. A disk that carries a machine's identity and runs in another host is
// refused, and both hosts are named: a copy beside the original, or a disk that moved. Asked before a stream changes
// anything, so that the machine's present session goes on. Source: decision 0263.
import { isDeepStrictEqual } from 'node:util';
import type { Metadata } from '@grpc/grpc-js';
import type { Clock } from '#shared/clock.ts';
import type { HostIdentity } from '#shared/domain/host-identity.ts';
import { inWords, isNobody, isSameHost, isSameUuid, merged } from '#shared/domain/host-identity.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { HOST_HEADER, hostFromHeader } from '#shared/protocol/host-header.ts';
import type { ShownHost } from '#shared/protocol/host-header.ts';
import type { Db } from '../stores/store/db.ts';
import type { MachineRow } from '../stores/store/queries/machines.ts';
import { machineById } from '../stores/store/queries/machines.ts';
import { noteRefusedHost, storeHostIdentity } from '../stores/store/queries/machine-joins.ts';
import type { MachineEvents } from './machine-events.ts';
import type { Machines } from './machines.ts';
import type { FleetMetrics } from './metrics.ts';

export interface HostIdentitiesParts {
  readonly machines: Pick<Machines, 'get' | 'all' | 'learn' | 'wrote'>;
  readonly db: Db;
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics: FleetMetrics;
  /** Writer of events; absent: nothing is told. */
  readonly machineEvents?: Pick<MachineEvents, 'write'>;
}

/** Writes that replicas make at once are read again so often. */
const TRIES = 3;

/** The host that a call's metadata shows; null: the agent finds out nothing. */
export function shownHost(metadata: Metadata): ShownHost | null {
  const shown = hostFromHeader(String(metadata.get(HOST_HEADER)[0] ?? ''));
  return shown === null || isNobody(shown.identity) ? null : shown;
}

export class HostIdentities {
  readonly #parts: HostIdentitiesParts;

  constructor(parts: HostIdentitiesParts) {
    this.#parts = parts;
  }

  /**
   * Checks that the call of a machine's agent comes from the machine's host. The first host shown is stored.
   * @throws AppError `machine_on_other_host`
   */
  async check(id: MachineId, metadata: Metadata): Promise<void> {
    const shown = shownHost(metadata);
    if (shown === null) return;
    const { machines, db } = this.#parts;
    for (let tries = 0; tries < TRIES; tries += 1) {
      const row = (tries === 0 ? machines.get(id)?.row : undefined) ?? (await machineById(db, id));
      if (row === undefined) return;
      const { hostIdentity: known } = row;
      if (known !== null && !isSameHost(known, shown.identity, this.#isShared(row, shown.identity)))
        throw await this.#refused(row, known, shown);
      const next = merged(known, shown.identity);
      if (isDeepStrictEqual(known, next)) return;
      const stored = await storeHostIdentity(db, id, known, next);
      if (stored === undefined) continue;
      machines.learn(stored);
      machines.wrote(id);
      return;
    }
  }

  /** Whether another machine with other cards has the UUID: firmware that was never given one of its own. */
  #isShared(row: MachineRow, { uuid }: HostIdentity): boolean {
    const own = row.hostIdentity?.macs ?? [];
    if (uuid === '' || own.length === 0) return false;
    for (const { row: other } of this.#parts.machines.all()) {
      const its = other.hostIdentity;
      if (other.id === row.id || its === null || its.uuid === '' || its.macs.length === 0) continue;
      if (isSameUuid(its.uuid, uuid) && !its.macs.some((mac) => own.includes(mac))) return true;
    }
    return false;
  }

  async #refused(row: MachineRow, known: HostIdentity, shown: ShownHost): Promise<AppError> {
    const { db, log, clock, metrics, machineEvents } = this.#parts;
    const other = this.#machineOf(row.id, shown.identity);
    const here = `${shown.hostname || 'a host'} (${inWords(shown.identity)}${other === undefined ? '' : `, machine ${other}`})`;
    const there = `${row.hostname || 'a host'} (${inWords(known)})`;
    const words = `the disk of this machine, which is ${there}, was copied or moved to ${here}, and is refused there`;
    let noted: MachineRow | undefined;
    const note = async (tx: Parameters<typeof noteRefusedHost>[0]): Promise<boolean> => {
      noted = await noteRefusedHost(tx, row.id, words, clock.nowMs());
      return noted !== undefined;
    };
    if (machineEvents === undefined) await note(db);
    else await machineEvents.write(row, 'refused', words, note);
    if (noted !== undefined) {
      metrics.disconnects.inc({ pool: row.poolName, reason: 'other_host' });
      log.error(
        { machineId: row.id, host: there, refusedHost: here, otherMachineId: other },
        "a machine's disk on another host was refused",
      );
      this.#parts.machines.learn(noted);
      this.#parts.machines.wrote(row.id);
    }
    return new AppError(
      'machine_on_other_host',
      `this disk carries the identity of machine ${row.id}, which is ${there}; this host is ${here}`,
      { details: { machineId: row.id } },
    );
  }

  /** The machine that the host is by its own right. */
  #machineOf(id: MachineId, shown: HostIdentity): MachineId | undefined {
    for (const { row } of this.#parts.machines.all()) {
      const its = row.hostIdentity;
      if (row.id === id || its === null) continue;
      if (shown.instanceId !== '' && its.instanceId === shown.instanceId) return row.id;
      if (shown.instanceId === '' && shown.uuid !== '' && its.uuid !== '' && isSameHost(its, shown, true))
        return row.id;
    }
    return undefined;
  }
}
