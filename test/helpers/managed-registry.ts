// The managed registry as `longshore up --registry` runs it, with its layers in a directory of the test.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import { ManagedRegistry } from '#cli/up/managed-registry.ts';
import { registryDirectory } from '#cli/up/registry-config.ts';
import { tempDirectory, waitFor } from './programs.ts';

/** @param options - address: on loopback; absent: a socket. program: absent: the packaged registry */
export const registryIn = (
  dataDir: string,
  { address, program = 'docker-registry' }: { readonly address?: string; readonly program?: string } = {},
): ManagedRegistry =>
  new ManagedRegistry({
    program,
    settings: { LONGSHORE_DATA_DIR: dataDir, LONGSHORE_OBJECTS_REGION: '', LONGSHORE_OBJECTS_PREFIX: '' },
    address,
    log: pino({ level: 'silent' }),
  });

/** A registry that runs, in a directory of its own. */
export class ServedRegistry {
  readonly directory = tempDirectory('registry');
  readonly #registry: ManagedRegistry;
  #serving: Promise<void> | undefined;

  constructor(address?: string) {
    this.#registry = registryIn(this.directory.path, address === undefined ? {} : { address });
  }

  get address(): string {
    return this.#registry.address;
  }

  async start(): Promise<void> {
    await this.#registry.start();
    this.#serving = this.#registry.run();
  }

  /** Has it collect its layers. @returns waits until another child serves, which is so afterwards */
  collect(): () => Promise<unknown> {
    const pid = (): string => readFileSync(join(registryDirectory(this.directory.path), 'pid'), 'utf8');
    const before = pid();
    this.#registry.collectNow();
    return () => waitFor(() => pid() !== before, 'the registry has changed its child', 60_000);
  }

  async stop(): Promise<void> {
    await this.#registry.stop();
    await this.#serving;
    this.directory.remove();
  }
}
