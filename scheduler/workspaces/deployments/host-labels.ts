// Host labels of deployments and their holders.
// Invariant: a label belongs to one name of one workspace for ever. Without
// the installation's key nobody can tell the label that a name will get.
import type { Queryable } from '../../stores/store/db.ts';
import { claimLabel, labelOfName } from '../../stores/store/queries/host-labels.ts';
import type { LabelHolder } from '../../stores/store/queries/host-labels.ts';
import { subdomainOf } from './urls.ts';

export class HostLabels {
  readonly #db: Queryable;
  readonly #key: Uint8Array;

  /** @param key - the same in every replica and for as long as the installation lives */
  constructor(db: Queryable, key: Uint8Array) {
    this.#db = db;
    this.#key = key;
  }

  /** The label of a name: the one that its versions have, else a new one. Two callers at once get the same label. */
  async of(holder: LabelHolder): Promise<{ readonly kind: 'label' | 'held'; readonly label: string }> {
    const known = await labelOfName(this.#db, holder);
    if (known !== undefined) return { kind: 'label', label: known };
    const label = subdomainOf(this.#key, holder);
    return { kind: (await claimLabel(this.#db, label, holder)) ? 'label' : 'held', label };
  }
}
