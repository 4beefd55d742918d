// Warnings of the host's checks, made hourly while the agent runs: persistence, ECC, rows that cannot be remapped, PCIe
// lanes, the toolkit, live-restore. They stop nothing; the scheduler and the metrics page have them.
import { isDeepStrictEqual } from 'node:util';
import { repeat } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { HostWarning } from '#shared/protocol/generated/messages.ts';
import type { Finding } from './finding.ts';

const EVERY_MS = 3_600_000;
/** Bound on warnings that are sent. */
const MOST = 32;

export interface HostWarningsParts {
  readonly check: () => Promise<readonly Finding[]>;
  readonly onCount: (checks: readonly Finding[]) => void;
  /** Called when the warnings changed. */
  readonly tell: (warnings: readonly HostWarning[]) => void;
  readonly log: Log;
}

export class HostWarnings {
  readonly #parts: HostWarningsParts;
  readonly #abort = new AbortController();
  #warnings: readonly HostWarning[] = [];
  #running: Promise<void> | undefined;

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
    this.#running = this.look()
      .catch(onError)
      .then(() => repeat(EVERY_MS, this.#abort.signal, () => this.look(), onError));
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#running;
  }

  async look(): Promise<void> {
    const { check, onCount, tell, log } = this.#parts;
    const findings = await check();
    onCount(findings);
    const warnings = findings
      .filter(({ level }) => level !== 'ok')
      .slice(0, MOST)
      .map(({ check: name, found, remedy }) => ({ check: name, found, remedy }));
    if (isDeepStrictEqual(warnings, this.#warnings)) return;
    for (const warning of warnings) log.warn(warning, 'a check of the host warns');
    this.#warnings = warnings;
    tell(warnings);
  }
}
