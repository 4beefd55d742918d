// Encryption at rest: sealed values in the database can be read only with the
// installation's key file. Owns the key and the envelope; called by identity/ (signing
// keys, the CA) and by modules that store secrets. The key never leaves this file.
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { link, mkdir, open, readFile, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { AppError, StartupError, messageOf } from '#shared/errors.ts';

export interface Sealer {
  /** Seals a value. @param context - names the value (`installation.ca_key`); a value moved elsewhere does not open */
  seal(plain: Uint8Array, context: string): Uint8Array;
  /** @throws AppError `sealed_value_unreadable`: another key, another context, or damaged */
  open(sealed: Uint8Array, context: string): Uint8Array;
  /**
   * Seals a value anew that only the previous key opens; undefined: the present key opens it.
   * @throws AppError `sealed_value_unreadable`
   */
  renewed(sealed: Uint8Array, context: string): Uint8Array | undefined;
}

const SETTING = 'LONGSHORE_SECRET_KEY_FILE';
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** First byte of an envelope: AES-256-GCM, nonce, tag, ciphertext. */
const VERSION = 1;

/** Makes a sealer. @param previous - opens values that `key` does not, and seals nothing */
export function createSealer(key: Uint8Array, previous?: Uint8Array): Sealer {
  const present = sealerOf(key);
  if (previous === undefined) return { ...present, renewed: (sealed, context) => void present.open(sealed, context) };
  const before = sealerOf(previous);
  const opened = (sealed: Uint8Array, context: string): { readonly plain: Uint8Array; readonly isOld: boolean } => {
    try {
      return { plain: present.open(sealed, context), isOld: false };
    } catch {
      return { plain: before.open(sealed, context), isOld: true };
    }
  };
  return {
    seal: (plain, context) => present.seal(plain, context),
    open: (sealed, context) => opened(sealed, context).plain,
    renewed: (sealed, context) => {
      const { plain, isOld } = opened(sealed, context);
      return isOld ? present.seal(plain, context) : undefined;
    },
  };
}

function sealerOf(key: Uint8Array): Pick<Sealer, 'seal' | 'open'> {
  if (key.length !== KEY_BYTES) throw new RangeError(`a sealing key has ${KEY_BYTES} bytes`);
  return {
    seal(plain, context) {
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv('aes-256-gcm', key, nonce);
      cipher.setAAD(Buffer.from(context));
      const body = Buffer.concat([cipher.update(plain), cipher.final()]);
      return Buffer.concat([Buffer.of(VERSION), nonce, cipher.getAuthTag(), body]);
    },
    open(sealed, context) {
      const tagAt = 1 + NONCE_BYTES;
      const bodyAt = tagAt + TAG_BYTES;
      if (sealed.length < bodyAt || sealed[0] !== VERSION) throw unreadable(context);
      try {
        const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(1, tagAt), { authTagLength: TAG_BYTES });
        decipher.setAAD(Buffer.from(context));
        decipher.setAuthTag(sealed.subarray(tagAt, bodyAt));
        return Buffer.concat([decipher.update(sealed.subarray(bodyAt)), decipher.final()]);
      } catch (error) {
        throw unreadable(context, error);
      }
    },
  };
}

const unreadable = (context: string, cause?: unknown): AppError =>
  new AppError('sealed_value_unreadable', `a sealed value (${context}) does not open with this key`, { cause });

/**
 * Reads the key from the named file (which must exist), else from `<dataDir>/secret.key`, made (0600) when missing.
 * @throws StartupError `secret_key_unusable`
 */
export async function openSealer(options: {
  readonly keyFile?: string | undefined;
  /** File of the previous key, which still opens values and seals none. */
  readonly previousKeyFile?: string | undefined;
  readonly dataDir: string;
}): Promise<Sealer> {
  const path = options.keyFile ?? join(options.dataDir, 'secret.key');
  const made = options.keyFile === undefined ? await makeKeyFile(path) : undefined;
  const previous =
    options.previousKeyFile === undefined
      ? undefined
      : await readKeyFile(options.previousKeyFile, 'LONGSHORE_SECRET_KEY_FILE_PREVIOUS');
  return createSealer(made ?? (await readKeyFile(path)), previous);
}

async function readKeyFile(path: string, setting: string = SETTING): Promise<Uint8Array> {
  let text: string;
  try {
    text = (await readFile(path, 'utf8')).trim();
  } catch (error) {
    throw unusable(path, messageOf(error), error, setting);
  }
  const key = /^[0-9a-f]{64}$/i.test(text) ? Buffer.from(text, 'hex') : Buffer.from(text, 'base64');
  if (key.length !== KEY_BYTES) {
    throw unusable(path, 'it must hold 32 bytes as base64 or as 64 hex characters', undefined, setting);
  }
  return key;
}

/**
 * Makes the key file; undefined: there is one already. The file is complete
 * or absent: a key lost half-way would lose all values that it sealed.
 */
async function makeKeyFile(path: string): Promise<Uint8Array | undefined> {
  const key = randomBytes(KEY_BYTES);
  const temporary = `${path}.${process.pid}.${randomBytes(4).toString('hex')}`;
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    const existing = await readFile(path).catch(() => undefined);
    if (existing !== undefined) return undefined;
    const file = await open(temporary, 'wx', 0o600);
    try {
      await file.writeFile(`${key.toString('base64')}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
    await link(temporary, path);
    return key;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return undefined;
    throw unusable(path, messageOf(error), error);
  } finally {
    await rm(temporary, { force: true });
  }
}

function unusable(path: string, reason: string, cause?: unknown, setting: string = SETTING): StartupError {
  return new StartupError(
    'secret_key_unusable',
    `cannot use the secret key file ${path} (${reason}): ${setting} must name a readable key file`,
    { cause },
  );
}
