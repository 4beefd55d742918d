// Names of deployments by their ids, for lines of several. An id that is not known yet is asked for once in a while.
import type { Client } from '../client.ts';
import { listField, textField } from '../json.ts';

const ASK_EVERY_MS = 10_000;
const SHORT_ID = 8;

export class DeploymentNames {
  readonly #client: Pick<Client, 'rest'>;
  readonly #workspaceId: string;
  #names: ReadonlyMap<string, string> = new Map();
  #askedAtMs = -Infinity;

  constructor(client: Pick<Client, 'rest'>, workspaceId: string) {
    this.#client = client;
    this.#workspaceId = workspaceId;
  }

  /** Reads the newest names. Without an answer, lines have ids. */
  async read(): Promise<void> {
    this.#askedAtMs = Date.now();
    const answer = await this.#client.rest(`/deployment/${this.#workspaceId}?limit=1000`).catch(() => ({}));
    this.#names = new Map(listField(answer, 'data').map((one) => [textField(one, 'id'), textField(one, 'name')]));
  }

  /** The name; the beginning of an id that has none yet, and `-` for a line of no deployment. */
  of(deploymentId: string): string {
    if (deploymentId === '') return '-';
    const name = this.#names.get(deploymentId);
    if (name === undefined && Date.now() - this.#askedAtMs >= ASK_EVERY_MS) void this.read();
    return name ?? deploymentId.slice(0, SHORT_ID);
  }
}
