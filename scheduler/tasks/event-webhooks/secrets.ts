// Secrets of webhooks: made, sealed, and in the clear for the moment of signing. Open ones are kept while their webhook
// does not change.
import { randomUUID } from 'node:crypto';
import type { Clock } from '#shared/clock.ts';
import type { WebhookId } from '#shared/domain/ids.ts';
import type { Db } from '../../stores/store/db.ts';
import { secretsOfWebhooks } from '../../stores/store/queries/webhooks.ts';
import type { NewSecret, WebhookRow } from '../../stores/store/queries/webhooks.ts';
import { BoundedMap } from '../../workspaces/deployments/bounded-map.ts';
import type { Sealer } from '../../workspaces/secrets/seal.ts';
import { webhookContextOf } from '../../workspaces/secrets/service.ts';
import { newSecret } from './message.ts';

/** Most webhooks whose secrets are kept open. */
const MOST_OPEN = 1_000;

interface Open {
  readonly updatedAtMs: number;
  readonly secrets: readonly { readonly text: string; readonly untilMs: number }[];
}

export class WebhookSecrets {
  readonly #db: Db;
  readonly #sealer: Sealer;
  readonly #clock: Pick<Clock, 'nowMs'>;
  readonly #open = new BoundedMap<WebhookId, Open>(MOST_OPEN);

  constructor(db: Db, sealer: Sealer, clock: Pick<Clock, 'nowMs'>) {
    this.#db = db;
    this.#sealer = sealer;
    this.#clock = clock;
  }

  /** A new secret, in the clear and as its row has it. */
  make(id: WebhookId): NewSecret & { readonly text: string } {
    const text = newSecret();
    return { id: randomUUID(), text, sealed: this.#sealer.seal(Buffer.from(text), webhookContextOf(id)) };
  }

  /** Secrets that sign now, the newest first. @throws AppError `sealed_value_unreadable` */
  async of({ id, updatedAtMs }: Pick<WebhookRow, 'id' | 'updatedAtMs'>): Promise<readonly string[]> {
    let open = this.#open.get(id);
    if (open?.updatedAtMs !== updatedAtMs) {
      const rows = await secretsOfWebhooks(this.#db, [id]);
      const secrets = rows.map(({ sealed, signsUntilMs }) => ({
        text: Buffer.from(this.#sealer.open(sealed, webhookContextOf(id))).toString('utf8'),
        untilMs: signsUntilMs ?? Infinity,
      }));
      open = { updatedAtMs, secrets };
      this.#open.set(id, open);
    }
    const nowMs = this.#clock.nowMs();
    return open.secrets.filter(({ untilMs }) => untilMs > nowMs).map(({ text }) => text);
  }

  /** Reads the secrets of a webhook anew at their next use. */
  forget(id: WebhookId): void {
    this.#open.delete(id);
  }
}
