/**
 * A directory that the operator named for volumes, on a disk of its own. When that disk is not mounted, its directory
 * is missing, or an empty one of the disk below: volumes would fill the root disk. So the agent never makes such a
 * directory. At the first use it leaves a mark in it, and from then on works only where the mark is.
 */
import { join } from 'node:path';
import { NoAnswer, runInChild } from '../child.ts';
import { readIfThere, writeDurably } from '../durable.ts';

const MARK = '.longshore-disk';
const DEADLINE_MS = 5_000;

const LOOK = `[ -d "$1" ] || { printf missing; exit 0; }
[ ! -e "$1/$2" ] || { printf marked; exit 0; }
printf unmarked`;
const LEAVE_MARK = 'set -eu; umask 077; cd -P -- "$1"; : >> "$2"';

/** The directory is not there, or belongs to another disk than before: as with a disk that does not answer. */
export class HomeMissing extends NoAnswer {}

export interface HomeParts {
  readonly name: 'cache' | 'shared';
  readonly root: string;
  readonly stateDir: string;
}

export class VolumesHome {
  readonly #parts: HomeParts;
  #known: string | undefined;

  constructor(parts: HomeParts) {
    this.#parts = parts;
  }

  /** @throws HomeMissing with the cure, NoAnswer when the disk hangs, Error when the mark cannot be written */
  async check(): Promise<void> {
    const { root } = this.#parts;
    const found = await runInChild(LOOK, [root, MARK], DEADLINE_MS);
    if (found === 'missing') throw new HomeMissing(missingText(root));
    this.#known ??= (await readIfThere(this.#path))?.trim() ?? '';
    if (found !== 'marked') {
      if (this.#known === root) throw new HomeMissing(unmarkedText(root));
      await runInChild(LEAVE_MARK, [root, MARK], DEADLINE_MS);
    }
    if (this.#known === root) return;
    await writeDurably(this.#path, `${root}\n`);
    this.#known = root;
  }

  get #path(): string {
    return join(this.#parts.stateDir, `marked-${this.#parts.name}`);
  }
}

export const missingText = (root: string): string =>
  `${root} is not there. Mount its disk; for the first time make the directory on it: mkdir -m 700 ${root}`;

const unmarkedText = (root: string): string =>
  `${root} is not the directory of before: ${MARK} is missing in it. Mount its disk; where this is a new disk: touch ${join(root, MARK)}`;
