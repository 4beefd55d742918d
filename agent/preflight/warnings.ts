// Warnings of the host's checks, made hourly while the agent runs: the engine, the firewall, disks, the base image and
// GPUs. They stop nothing; the scheduler and the metrics page have them.
import { isDeepStrictEqual } from 'node:util';
import { repeat, withDeadline } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { HostWarning } from '#shared/protocol/generated/messages.ts';
import type { Finding } from './finding.ts';

const EVERY_MS = 3_600_000;
/** Bound on warnings that are sent. */
const MOST = 32;
/** A check that takes longer hangs, as a disk of another host may. */
const LOOK_MS = 180_000;
/**
 * Checks whose warnings matter on machines of a fleet. `serve` on somebody's own machine shows warnings on the screen,
 * and these are no fault there.
 */
const OF_A_FLEET: ReadonlySet<string> = new Set([
  'live restore',
  'cgroup',
  'gpu persistence',
  'gpu clocks',
  'gpu pcie',
]);

export interface HostWarningsParts {
  readonly check: () => Promise<readonly Finding[]>;
  /** Called at each look with every check so far; a check that is no longer made does not warn. */
  readonly onCount: (check: string, warns: boolean) => void;
  /** Called when the warnings changed. */
  readonly tell: (warnings: readonly HostWarning[]) => void;
  readonly log: Log;
}

export class HostWarnings {
  readonly #parts: HostWarningsParts;
  readonly #abort = new AbortController();
  readonly #checks = new Set<string>();
  /** A check that hangs holds threads: no second one is begun. */
  #isChecking = false;
  #warnings: readonly HostWarning[] = [];

  constructor(parts: HostWarningsParts) {
    this.#parts = parts;
  }

  /** The warnings of the last look. */
  get current(): readonly HostWarning[] {
    return this.#warnings;
  }

  start(): void {
    const { log } = this.#parts;
    const onError = (error: unknown): void => log.info({ err: error }, 'the host could not be checked');
    void this.look()
      .catch(onError)
      .then(() => repeat(EVERY_MS, this.#abort.signal, () => this.look(), onError));
  }

  /** A look in progress ends by itself, and tells nothing. */
  stop(): void {
    this.#abort.abort();
  }

  async look(): Promise<void> {
    const { check, onCount, tell, log } = this.#parts;
    if (this.#isChecking) throw new Error('the last check has not ended');
    this.#isChecking = true;
    const checked = check().finally(() => {
      this.#isChecking = false;
    });
    const findings = await withDeadline(checked, LOOK_MS, () => new Error(`no end after ${LOOK_MS / 1000} s`));
    if (this.#abort.signal.aborted) return;
    const bad = findings.filter(({ level }) => level !== 'ok').slice(0, MOST);
    const names = new Set(bad.map(({ check: name }) => name));
    for (const { check: name } of findings) this.#checks.add(name);
    for (const name of this.#checks) onCount(name, names.has(name));
    const warnings = bad.map(({ check: name, found, remedy }) => ({ check: name, found, remedy }));
    if (isDeepStrictEqual(warnings, this.#warnings)) return;
    for (const { level, ...warning } of bad) {
      const write = level === 'warning' && OF_A_FLEET.has(warning.check) ? log.info.bind(log) : log.warn.bind(log);
      write(warning, 'a check of the host warns');
    }
    this.#warnings = warnings;
    tell(warnings);
  }
}
