// The providers that the file names, by name. A provider whose settings did not change stays as it is when the file is
// read again, with its running calls. One that the file names no more makes nothing.
import { isDeepStrictEqual } from 'node:util';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { ConfiguredProvider } from '../../domain/provisioning.ts';
import { CommandProvider } from './command-provider.ts';
import type { ProviderVerb } from './command-provider.ts';
import { readProvidersFile } from './providers-file.ts';
import type { ProviderSettings, ProvidersFile } from './providers-file.ts';

export interface ProvidersParts {
  /** Directory in which each program has a folder of its own. */
  readonly home: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly log: Log;
  /** Told when a call ended. */
  readonly onCalled?: (provider: string, verb: ProviderVerb, failure: string | null, instances?: number) => void;
}

export class Providers {
  readonly #parts: ProvidersParts;
  readonly #of = new Map<string, { readonly settings: ProviderSettings; readonly provider: ConfiguredProvider }>();

  constructor(parts: ProvidersParts, file: ProvidersFile | undefined) {
    this.#parts = parts;
    if (file !== undefined) this.#take(file);
  }

  names(): readonly string[] {
    return [...this.#of.keys()];
  }

  get(name: string): ConfiguredProvider | undefined {
    return this.#of.get(name)?.provider;
  }

  /** undefined: the file names no such provider. */
  settingsOf(name: string): ProviderSettings | undefined {
    return this.#of.get(name)?.settings;
  }

  /** Reads the file again; a bad file changes nothing. */
  async readAgain(path: string): Promise<void> {
    const { log } = this.#parts;
    try {
      this.#take(await readProvidersFile(path));
      log.info({ file: path, providers: this.names(), onScreen: true }, 'providers file read again');
    } catch (error) {
      log.error(
        { err: error, file: path, why: messageOf(error) },
        'providers file not taken: providers stay as they are',
      );
    }
  }

  #take({ providers }: ProvidersFile): void {
    const { home, env, onCalled } = this.#parts;
    for (const name of this.names()) if (!providers.has(name)) this.#of.delete(name);
    for (const [name, settings] of providers) {
      if (isDeepStrictEqual(this.#of.get(name)?.settings, settings)) continue;
      const provider = new CommandProvider({
        name,
        settings,
        home: `${home}/${name}`,
        env,
        onCalled: (verb, failure, instances) => onCalled?.(name, verb, failure, instances),
      });
      this.#of.set(name, { settings, provider });
    }
  }
}
