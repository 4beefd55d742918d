/**
 * Orders of an operator about one GPU: keep it out, bring it back, reset it, forget it. Owned by gpus.ts. Must stay
 * true: a device that comes back is probed before anybody gets it. A reset happens only while nothing uses the device.
 * Other devices and the place in the kernel's log are not touched.
 */
import { messageOf } from '#shared/errors.ts';
import type { GpuAction } from '#shared/domain/gpus.ts';
import type { Log } from '#shared/log.ts';
import type { Device, DeviceTable } from './device-table.ts';
import type { MemoryWatch } from './memory-watch.ts';
import type { Prober } from './prober.ts';

export interface DeviceOrdersParts {
  readonly table: DeviceTable;
  /** Devices of containers, builds and probes. */
  readonly inUse: () => ReadonlySet<string>;
  readonly memory: Pick<MemoryWatch, 'accept'>;
  readonly prober: Pick<Prober, 'again' | 'check'>;
  /** Has a program with the right to do so reset the device. @throws with its words */
  readonly reset: (device: { readonly uuid: string; readonly busId: string }) => Promise<void>;
  readonly onChange: () => void;
  readonly log: Log;
}

export class DeviceOrders {
  readonly #parts: DeviceOrdersParts;
  #resetting = '';

  constructor(parts: DeviceOrdersParts) {
    this.#parts = parts;
  }

  /** A reset runs: the tool must not keep devices open meanwhile. */
  get isResetting(): boolean {
    return this.#resetting !== '';
  }

  /**
   * @param uuid - a device, a slice, or a divided device for all of its slices
   * @throws Error with a text for people: it is refused, or the reset failed
   */
  async carryOut(uuid: string, action: GpuAction): Promise<void> {
    const { table, log, onChange } = this.#parts;
    const targets = table.all().filter((one) => one.uuid === uuid || one.parentUuid === uuid);
    if (targets.length === 0) throw new Error(`this machine knows no GPU ${uuid}`);
    log.warn({ gpuUuid: uuid, action }, 'an operator acts on a GPU');
    try {
      if (action === 'exclude') for (const one of targets) table.exclude(one.uuid, true);
      else if (action === 'return') this.#return(targets);
      else if (action === 'forget') this.#forget(targets);
      else await this.#reset(targets);
    } finally {
      onChange();
      this.#parts.prober.check();
    }
  }

  #return(targets: readonly Device[]): void {
    const { table, inUse, memory, prober } = this.#parts;
    const problem = targets.map((one) => whyNotReturned(one)).find((why) => why !== '');
    if (problem !== undefined) throw new Error(problem);
    for (const { uuid } of targets) {
      table.exclude(uuid, false);
      memory.accept(uuid);
      // A container that has run on through the exclusion proves more than a probe.
      if (!inUse().has(uuid)) table.event(uuid, { kind: 'returned' });
      prober.again(uuid);
    }
  }

  #forget(targets: readonly Device[]): void {
    const { table, inUse } = this.#parts;
    const there = targets.find(({ health }) => health.state !== 'lost');
    if (there !== undefined)
      throw new Error(
        `GPU ${there.uuid} is ${there.health.state}: only a lost one, whose card was taken out, is forgotten`,
      );
    const used = targets.find(({ uuid }) => inUse().has(uuid));
    if (used !== undefined) throw new Error(`a container still has GPU ${used.uuid}: try again when it is gone`);
    for (const { uuid } of targets) table.forget(uuid);
  }

  async #reset(targets: readonly Device[]): Promise<void> {
    const { table, reset, prober } = this.#parts;
    if (this.#resetting !== '') throw new Error(`GPU ${this.#resetting} is being reset: try again in a minute`);
    const [first] = targets;
    const whole = first?.parentUuid || (first?.uuid ?? '');
    const together = table.resetTogether(whole);
    const problem = this.#whyNotReset(whole, together);
    if (problem !== undefined) throw new Error(problem);
    const devices = table.all().filter((one) => (one.parentUuid || one.uuid) === whole);
    const before = devices.map(({ uuid, health }) => ({ uuid, health }));
    this.#resetting = whole;
    for (const { uuid } of before) table.event(uuid, { kind: 'broken', why: 'an operator resets it' });
    this.#parts.onChange();
    try {
      await reset({ uuid: whole, busId: first?.busId ?? '' });
    } catch (error) {
      // The device is as it was, unless it served: then a probe shows whether it still does.
      for (const { uuid, health } of before)
        if (health.state === 'unhealthy')
          table.event(uuid, { kind: 'broken', why: health.why, asked: health.resetAsked });
        else table.event(uuid, { kind: 'returned' });
      throw new Error(`GPU ${whole} was not reset: ${messageOf(error)}`, { cause: error });
    } finally {
      this.#resetting = '';
    }
    for (const { uuid } of before) {
      table.exclude(uuid, false);
      table.event(uuid, { kind: 'returned' });
      prober.again(uuid);
    }
  }

  #whyNotReset(whole: string, together: readonly string[]): string | undefined {
    const { table, inUse } = this.#parts;
    const used = inUse();
    const isOf = ({ uuid, parentUuid }: Device): boolean => together.includes(parentUuid || uuid);
    const device = table
      .all()
      .filter(isOf)
      .find(({ uuid }) => used.has(uuid));
    const lost = table.all().find((one) => (one.parentUuid || one.uuid) === whole && one.health.state === 'lost');
    if (lost !== undefined) return `GPU ${whole} is lost, and no reset reaches it: reboot the host`;
    if (device === undefined) return undefined;
    const linked = together.length > 1 ? ` (GPUs on one NVLink fabric are reset while none of them is used)` : '';
    return `a container, a build or a probe uses GPU ${device.uuid}${linked}: exclude it, and try again when it is gone`;
  }
}

/** @returns why a probe may not decide; empty: it may */
function whyNotReturned({ uuid, health: { state, why, resetAsked } }: Device): string {
  if (state === 'lost') return `GPU ${uuid} is lost: it returns when the driver lists it`;
  if (resetAsked) return `GPU ${uuid} needs its recovery first (${why}): reset it`;
  // A process that is left has the device; a probe beside it would prove nothing.
  return state === 'quarantined' ? `GPU ${uuid} is quarantined (${why}): it returns when no process is left on it` : '';
}
