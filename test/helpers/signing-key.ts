// A key of gpg for tests, in a home of its own.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';

export interface SigningKey {
  readonly address: string;
  /** Variables by which gpg finds the key. */
  readonly env: Readonly<Record<string, string>>;
  /** Writes the public key, as `gpg --export` does. */
  readonly exportTo: (path: string) => Promise<void>;
  /** Writes `FILE.asc`. */
  readonly sign: (file: string) => Promise<void>;
  /** Whether `FILE.asc` is this key's for that file. */
  readonly isGood: (file: string) => Promise<boolean>;
  /** Ends the agent that gpg has started. */
  readonly end: () => Promise<void>;
}

export async function signingKey(directory: string, address: string): Promise<SigningKey> {
  const home = join(directory, address);
  mkdirSync(home, { recursive: true, mode: 0o700 });
  const env = { GNUPGHOME: home };
  const gpg = (args: readonly string[], reject = true) => execa('gpg', ['--batch', '--yes', ...args], { env, reject });
  await gpg(['--passphrase', '', '--quick-generate-key', address, 'ed25519', 'sign', 'never']);
  return {
    address,
    env,
    exportTo: async (path) => void (await gpg(['--output', path, '--export', address])),
    sign: async (file) => void (await gpg(['--armor', '--output', `${file}.asc`, '--detach-sign', file])),
    isGood: async (file) => (await gpg(['--verify', `${file}.asc`, file], false)).exitCode === 0,
    end: async () => void (await execa('gpgconf', ['--kill', 'gpg-agent'], { env })),
  };
}
