// Settings that the administrator changes while schedulers run: rows win over the environment. Owns the rows and this
// replica's copy. Every replica that listens uses a change before the change is answered, or the answer says that one
// does not yet. The rows are read again each half minute, so that such a replica follows.
import { repeat } from '#shared/backoff.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { deleteSetting, settingRows, writeSetting } from '../../stores/store/queries/settings.ts';
import type { Actor } from '../events/audit.ts';
import type { InstallationTrail } from '../events/installation-trail.ts';
import type { Invalidation } from './invalidation.ts';

export interface SettingKind {
  /** The setting's value in the environment; '' where it has none. */
  readonly environment: string;
  readonly variable: string;
  readonly description: string;
  /** Why a value is refused, as text behind the field's name. */
  readonly problem: (value: string) => string | undefined;
  /** Puts a value to use. */
  readonly apply: (value: string) => void;
}

export interface Setting {
  readonly name: string;
  readonly value: string;
  readonly source: 'database' | 'environment' | 'default';
  readonly variable: string;
  readonly description: string;
  readonly updatedAtMs: number | null;
}

export interface ChangedSetting extends Setting {
  /** Whether every replica that listens uses it now; a replica that does not follows within half a minute. */
  readonly isEverywhere: boolean;
}

export interface RuntimeSettingsParts {
  readonly db: Queryable;
  readonly invalidation: Pick<Invalidation, 'publish' | 'on' | 'onReset'>;
  readonly trail: Pick<InstallationTrail, 'transaction'>;
  readonly kinds: Readonly<Record<string, SettingKind>>;
  readonly log: Log;
}

const READ_EVERY_MS = 30_000;
/** Longest value. */
export const MAX_SETTING = 4096;

export class RuntimeSettings {
  readonly name = 'settings';
  readonly #parts: RuntimeSettingsParts;
  readonly #stop = new AbortController();
  #reading: Promise<void> = Promise.resolve();
  #watch: Promise<void> | undefined;

  constructor(parts: RuntimeSettingsParts) {
    this.#parts = parts;
    parts.invalidation.on('setting', () => this.#read());
    parts.invalidation.onReset(() => void this.#read().catch((error: unknown) => this.#warn(error)));
  }

  async start(): Promise<void> {
    await this.#read();
    this.#watch = repeat(
      READ_EVERY_MS,
      this.#stop.signal,
      () => this.#read(),
      (error) => this.#warn(error),
    );
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#watch;
  }

  /** Lists all settings that can be changed. */
  async list(): Promise<readonly Setting[]> {
    const rows = new Map((await settingRows(this.#parts.db)).map((row) => [row.name, row]));
    return Object.entries(this.#parts.kinds).map(([name, { environment, variable, description }]) => {
      const row = rows.get(name);
      const source = row !== undefined ? 'database' : environment === '' ? 'default' : 'environment';
      const value = row?.value ?? environment;
      return { name, value, source, variable, description, updatedAtMs: row?.updatedAtMs ?? null };
    });
  }

  /** @throws AppError `setting_not_found`, `bad_request` */
  async set(name: string, value: string, by: Actor): Promise<ChangedSetting> {
    const problem =
      value.length > MAX_SETTING ? `must have at most ${MAX_SETTING} characters` : this.#kind(name).problem(value);
    if (problem !== undefined) throw new AppError('bad_request', `value ${problem}`);
    return this.#change(name, by, (db) => writeSetting(db, name, value));
  }

  /** The environment counts again. @throws AppError `setting_not_found` */
  async reset(name: string, by: Actor): Promise<ChangedSetting> {
    this.#kind(name);
    return this.#change(name, by, (db) => deleteSetting(db, name));
  }

  #kind(name: string): SettingKind {
    const { kinds } = this.#parts;
    const kind = Object.hasOwn(kinds, name) ? kinds[name] : undefined;
    if (kind !== undefined) return kind;
    const known = Object.keys(kinds).join(', ');
    throw new AppError('setting_not_found', `there is no setting of that name that can be changed: there is ${known}`);
  }

  async #change(name: string, by: Actor, change: (db: Queryable) => Promise<void>): Promise<ChangedSetting> {
    await this.#parts.trail.transaction(async (tx, say) => {
      await change(tx);
      say(by, 'audit.setting.updated', { workspaceId: null, target: { type: 'setting', id: name } });
    });
    const isEverywhere = await this.#parts.invalidation.publish('setting', name);
    const found = (await this.list()).find((one) => one.name === name);
    if (found === undefined) throw new Error('a setting is missing');
    return { ...found, isEverywhere };
  }

  /** Reads the rows, one read after the other: the last one to begin is the last to be applied. */
  #read(): Promise<void> {
    const read = this.#reading
      .catch(() => undefined)
      .then(async () => {
        const rows = new Map((await settingRows(this.#parts.db)).map(({ name, value }) => [name, value]));
        for (const [name, kind] of Object.entries(this.#parts.kinds)) kind.apply(rows.get(name) ?? kind.environment);
      });
    this.#reading = read;
    return read;
  }

  #warn(error: unknown): void {
    this.#parts.log.warn({ err: error }, 'settings could not be read again: those from before count');
  }
}
