/**
 * The releases that machines install from: archives, and for each channel a file that names
 * its release (as `npm run build` writes them). The files are read each time, so that a new
 * release counts at once. The installer checks the archive against the sha256 in that file.
 */
import { createReadStream } from 'node:fs';
import { open, readFile } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Value } from 'typebox/value';

const FILE = '^longshore-[0-9A-Za-z.+-]{1,64}-linux-(x64|arm64)\\.tar\\.gz$';
const Release = Type.Object({
  version: Type.String({ pattern: '^[0-9A-Za-z][0-9A-Za-z.+-]{0,63}$' }),
  file: Type.String({ pattern: FILE }),
  sha256: Type.String({ pattern: '^[0-9a-f]{64}$' }),
  bytes: Type.Integer({ minimum: 1 }),
});
/** Releases by platform; at least one is required. */
const Channel = Type.Object({ 'linux-x64': Type.Optional(Release), 'linux-arm64': Type.Optional(Release) });
export type Channel = Readonly<Static<typeof Channel>>;
/** Platforms, with the names that the script uses. */
const PLATFORMS = [
  ['linux-x64', 'RELEASE'],
  ['linux-arm64', 'RELEASE_ARM64'],
] as const;

const CHANNEL_NAME = /^[a-z0-9][a-z0-9-]{0,31}$/;
/** An archive, and its signature. */
const FILE_NAME = new RegExp(FILE.replace(/\$$/, '(\\.asc)?$'));
const INSTALLER = fileURLToPath(new URL('../../../systemd/install-agent.sh', import.meta.url));
/** Folder where `npm run build` puts releases in a checkout. */
const BUILT = fileURLToPath(new URL('../../../dist', import.meta.url));

export class Releases {
  readonly #directories: readonly string[];
  readonly #channel: string;

  /**
   * The releases of the directories.
   * @param directory - the operator's; absent: `releases` of the data directory, then this checkout's builds
   */
  constructor(options: {
    readonly directory?: string | undefined;
    readonly dataDir: string;
    readonly channel: string;
  }) {
    this.#directories =
      options.directory === undefined ? [join(options.dataDir, 'releases'), BUILT] : [options.directory];
    this.#channel = options.channel;
  }

  /** The release that a channel gives out now; undefined: the channel has none, or does not exist. */
  async of(channel: string = this.#channel): Promise<Channel | undefined> {
    if (!CHANNEL_NAME.test(channel)) return undefined;
    for (const directory of this.#directories) {
      const described = await readFile(join(directory, `${channel}.json`), 'utf8').catch(() => undefined);
      const found = described === undefined ? undefined : parse(described);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /**
   * The script that installs a channel's release. The script carries the
   * archive's hash, and the command that a person runs carries the script's.
   */
  async installer(channel?: string): Promise<string | undefined> {
    const found = await this.of(channel);
    if (found === undefined) return undefined;
    let text = await readFile(INSTALLER, 'utf8');
    for (const [platform, prefix] of PLATFORMS) {
      const release = found[platform];
      if (release === undefined) continue;
      const values = { VERSION: release.version, FILE: release.file, SHA256: release.sha256 };
      for (const [name, value] of Object.entries(values))
        text = text.replace(`\n${prefix}_${name}=''\n`, `\n${prefix}_${name}='${value}'\n`);
    }
    return text;
  }

  /** Opens an archive or its signature; undefined: there is none of that name. */
  async open(file: string): Promise<{ readonly bytes: number; readonly stream: Readable } | undefined> {
    if (!FILE_NAME.test(file)) return undefined;
    for (const directory of this.#directories) {
      const handle = await open(join(directory, file), 'r').catch(() => undefined);
      if (handle === undefined) continue;
      const facts = await handle.stat();
      if (facts.isFile()) return { bytes: facts.size, stream: createReadStream('', { fd: handle }) };
      await handle.close();
    }
    return undefined;
  }
}

function parse(text: string): Channel | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return Value.Check(Channel, value) && PLATFORMS.some(([name]) => value[name] !== undefined) ? value : undefined;
  } catch {
    return undefined;
  }
}
