/**
 * The packages that people install, as `npm run build` writes them: the command line for npm and the Python module's
 * wheels. They are in the folder `install` beside the releases. Other names are not given out.
 */
import { createHash } from 'node:crypto';
import { readFile, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder's name, which `scripts/build/packages.mjs` writes. */
const FOLDER = 'install';
const COMMAND_LINE = 'longshore.tgz';
const WHEEL = /^longshore(?:_shims)?-[0-9A-Za-z][0-9A-Za-z.+]{0,63}-py3-none-any\.whl$/;
/** The folder in which a checkout builds, and which a release brings. */
const BUILT = fileURLToPath(new URL('../../../dist', import.meta.url));

export interface PackageFile {
  readonly bytes: Buffer;
  /** A strong entity tag, in quotes. */
  readonly tag: string;
}

interface Kept extends PackageFile {
  readonly modifiedMs: number;
  readonly size: number;
}

export interface PackageNames {
  readonly commandLine: string;
  /** The wheel of the module. */
  readonly module: string;
  /** The wheel with the names of the published packages. */
  readonly shims: string;
}

export class Packages {
  readonly #folders: readonly string[];
  /** Files in memory, at most one per name; all together have about 1 MB. */
  readonly #kept = new Map<string, Kept>();

  /**
   * The packages of the directories.
   * @param directory - the operator's releases; absent: `releases` of the data directory
   * @param built - searched next; this program's own builds
   */
  constructor(options: { readonly directory?: string | undefined; readonly dataDir: string; readonly built?: string }) {
    const { directory = join(options.dataDir, 'releases'), built = BUILT } = options;
    this.#folders = [directory, built].map((root) => join(root, FOLDER));
  }

  /** The names of what can be installed; undefined: nothing was built. */
  async names(): Promise<PackageNames | undefined> {
    for (const folder of this.#folders) {
      const files = await readdir(folder).catch((): readonly string[] => []);
      const wheels = files.filter((file) => WHEEL.test(file)).toSorted();
      const module = wheels.find((file) => file.startsWith('longshore-'));
      const shims = wheels.find((file) => file.startsWith('longshore_shims-'));
      if (files.includes(COMMAND_LINE) && module !== undefined && shims !== undefined)
        return { commandLine: COMMAND_LINE, module, shims };
    }
    return undefined;
  }

  /** Reads a package; undefined: there is none of that name. */
  async open(name: string): Promise<PackageFile | undefined> {
    if (name !== COMMAND_LINE && !WHEEL.test(name)) return undefined;
    for (const folder of this.#folders) {
      const path = join(folder, name);
      const facts = await stat(path).catch(() => undefined);
      if (facts?.isFile() !== true) continue;
      const kept = this.#kept.get(name);
      if (kept?.modifiedMs === facts.mtimeMs && kept.size === facts.size) return kept;
      const bytes = await readFile(path);
      const tag = `"${createHash('sha256').update(bytes).digest('hex').slice(0, 32)}"`;
      const read = { bytes, tag, modifiedMs: facts.mtimeMs, size: bytes.byteLength };
      this.#kept.set(name, read);
      return read;
    }
    return undefined;
  }
}
