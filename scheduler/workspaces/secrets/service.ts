// A workspace's secrets: values that its containers get as variables. The REST routes call it, stubs (does the name
// exist?), and the fleet's sessions, which send the values when a container may be created.
// Invariant: a value is in the clear only in a request, in the message that lets one container be made, in that
// container, and in an answer to a full token where the operator allows it. No row, stub, snapshot or log line has it.
import { randomUUID } from 'node:crypto';
import { MAX_SECRET_BYTES, REGISTRY_SECRET_PREFIX, SECRET_NAME } from '#shared/api/rest/secrets.ts';
import type { RegistrySecret } from '#shared/api/rest/secrets.ts';
import { AppError } from '#shared/errors.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { isUniqueViolation } from '../../stores/store/db.ts';
import type { Db, Queryable } from '../../stores/store/db.ts';
import { SYSTEM, auditEvent } from '../events/audit.ts';
import type { Actor, AuditKind } from '../events/audit.ts';
import { EventWriter } from '../events/writer.ts';
import {
  deleteSecret,
  insertSecret,
  listSecrets,
  sealedSecrets,
  sealedSecretsLike,
  secretNamed,
  updateSecret,
} from '../../stores/store/queries/secrets.ts';
import { lockCounts } from '../../stores/store/queries/workspaces.ts';
import type { SecretRow } from '../../stores/store/queries/secrets.ts';
import { isRegistrySecret, readRegistrySecret } from './registry-secret.ts';
import type { Sealer } from './seal.ts';

const NAME = new RegExp(SECRET_NAME);
const MAX_SECRETS = 500;
/** Most credentials of registries that are looked through for one image, in the order of their names. */
const MAX_REGISTRIES = 50;
/** Bytes of all values of a container together: they fit a message of the link, and the environment of a process. */
const MAX_CONTAINER_BYTES = 256 * 1024;

/** Values by name; or the names that are missing; or the finding that the values are too large for a container. */
export type SecretValues =
  | { readonly kind: 'values'; readonly values: Readonly<Record<string, string>> }
  | { readonly kind: 'missing'; readonly names: readonly string[] }
  | { readonly kind: 'too_large'; readonly mostBytes: number };

export class Secrets {
  readonly #db: Db;
  readonly #sealer: Sealer;
  readonly #events: Pick<EventWriter, 'transaction'>;

  constructor(db: Db, sealer: Sealer, events: Pick<EventWriter, 'transaction'> = new EventWriter()) {
    this.#db = db;
    this.#sealer = sealer;
    this.#events = events;
  }

  /** Secrets in the order of their names, without values. */
  list(workspaceId: WorkspaceId): Promise<readonly SecretRow[]> {
    return listSecrets(this.#db, workspaceId);
  }

  /** @throws AppError `invalid_body`, `secret_exists`, `bad_request` (too many) */
  async create(workspaceId: WorkspaceId, name: string, value: string, by: Actor = SYSTEM): Promise<SecretRow> {
    if (!NAME.test(name)) {
      throw invalid('name must be letters, digits or underscore, at most 128, and not begin with a digit');
    }
    const sealed = this.#seal(workspaceId, name, value);
    try {
      const row = await this.#written('audit.secret.created', workspaceId, by, async (tx) => {
        await lockCounts(tx, workspaceId);
        return await insertSecret(tx, { id: randomUUID(), workspaceId, name, sealed, most: MAX_SECRETS });
      });
      if (row === undefined) throw new AppError('bad_request', `a workspace may have ${MAX_SECRETS} secrets`);
      return row;
    } catch (error) {
      if (!isUniqueViolation(error)) throw error;
      throw new AppError('secret_exists', `there is a secret ${name} already`, { cause: error });
    }
  }

  /** Containers that start from now on get the new value. @throws AppError `invalid_body`, `secret_not_found` */
  async change(workspaceId: WorkspaceId, name: string, value: string, by: Actor = SYSTEM): Promise<SecretRow> {
    const sealed = this.#seal(workspaceId, name, value);
    const row = NAME.test(name)
      ? await this.#written('audit.secret.updated', workspaceId, by, (tx) =>
          updateSecret(tx, { workspaceId, name, sealed }),
        )
      : undefined;
    if (row === undefined) throw notFound();
    return row;
  }

  /** @throws AppError `secret_not_found` */
  async delete(workspaceId: WorkspaceId, name: string, by: Actor = SYSTEM): Promise<void> {
    // Checked first, since no database can store or compare every text.
    const row = NAME.test(name)
      ? await this.#written('audit.secret.deleted', workspaceId, by, (tx) => deleteSecret(tx, workspaceId, name))
      : undefined;
    if (row === undefined) throw notFound();
  }

  /**
   * The value in the clear, for a person who may read it. The trail has an entry of each reading.
   * @throws AppError `secret_not_found`; `bad_request` for credentials of a registry
   */
  async read(
    workspaceId: WorkspaceId,
    name: string,
    by: Actor,
  ): Promise<{ readonly row: SecretRow; readonly value: string }> {
    if (isRegistrySecret(name)) throw new AppError('bad_request', 'credentials of an image registry are never shown');
    let sealed: Uint8Array | undefined;
    const row = NAME.test(name)
      ? await this.#written('audit.secret.read', workspaceId, by, async (tx) => {
          const found = await secretNamed(tx, workspaceId, name);
          sealed = found?.sealed;
          return found?.row;
        })
      : undefined;
    if (row === undefined || sealed === undefined) throw notFound();
    const value = Buffer.from(this.#sealer.open(sealed, contextOf(workspaceId, name))).toString('utf8');
    return { row, value };
  }

  /** Makes a change together with its event, which has the secret's name and never its value. */
  #written(
    kind: AuditKind,
    workspaceId: WorkspaceId,
    by: Actor,
    write: (tx: Queryable) => Promise<SecretRow | undefined>,
  ): Promise<SecretRow | undefined> {
    return this.#events.transaction(this.#db, async (tx, emit) => {
      const row = await write(tx);
      if (row !== undefined) {
        const { id, name } = row;
        emit(auditEvent(by, kind, { workspaceId, target: { type: 'secret', id, name } }, Date.now()));
      }
      return row;
    });
  }

  /** Names among these that the workspace does not have, each once. */
  async unknownOf(workspaceId: WorkspaceId, names: readonly string[]): Promise<readonly string[]> {
    if (names.length === 0) return [];
    const known = new Set((await this.#forContainers(workspaceId, names)).map((row) => row.name));
    return [...new Set(names)].filter((name) => !known.has(name));
  }

  /** Values in the clear, for a container that is about to be created. @throws AppError `sealed_value_unreadable` */
  async valuesOf(workspaceId: WorkspaceId, names: readonly string[]): Promise<SecretValues> {
    if (names.length === 0) return { kind: 'values', values: {} };
    const rows = await this.#forContainers(workspaceId, names);
    const values: Record<string, string> = {};
    for (const { name, sealed } of rows) {
      values[name] = Buffer.from(this.#sealer.open(sealed, contextOf(workspaceId, name))).toString('utf8');
    }
    const missing = names.filter((name) => !Object.hasOwn(values, name));
    const bytes = Object.values(values).reduce((sum, value) => sum + Buffer.byteLength(value), 0);
    if (bytes > MAX_CONTAINER_BYTES) return { kind: 'too_large', mostBytes: MAX_CONTAINER_BYTES };
    return missing.length > 0 ? { kind: 'missing', names: missing } : { kind: 'values', values };
  }

  /** The workspace's credentials of image registries, in the clear. @throws AppError `sealed_value_unreadable` */
  async registries(workspaceId: WorkspaceId): Promise<readonly RegistrySecret[]> {
    const rows = await sealedSecretsLike(this.#db, workspaceId, REGISTRY_SECRET_PREFIX, MAX_REGISTRIES);
    return rows
      .map(({ name, sealed }) => this.#sealer.open(sealed, contextOf(workspaceId, name)))
      .map((value) => readRegistrySecret(Buffer.from(value).toString('utf8')))
      .filter((found) => typeof found !== 'string');
  }

  /** Sealed secrets for a container. Credentials of a registry are left out, even if the stub names them. */
  #forContainers(workspaceId: WorkspaceId, names: readonly string[]): ReturnType<typeof sealedSecrets> {
    return sealedSecrets(
      this.#db,
      workspaceId,
      names.filter((name) => !isRegistrySecret(name)),
    );
  }

  #seal(workspaceId: WorkspaceId, name: string, value: string): Uint8Array {
    if (value === '') throw invalid('value must not be empty');
    const bytes = Buffer.from(value, 'utf8');
    if (bytes.length > MAX_SECRET_BYTES) throw invalid(`value must have at most ${MAX_SECRET_BYTES} bytes`);
    const problem = isRegistrySecret(name) ? readRegistrySecret(value) : undefined;
    if (typeof problem === 'string') throw invalid(problem);
    return this.#sealer.seal(bytes, contextOf(workspaceId, name));
  }
}

/** Context under which a secret is sealed. */
export const contextOf = (workspaceId: WorkspaceId, name: string): string => `secret.${workspaceId}.${name}`;
/** Context under which a webhook's secret is sealed. */
export const webhookContextOf = (webhookId: string): string => `webhook.${webhookId}`;
const invalid = (text: string): AppError => new AppError('invalid_body', text);
const notFound = (): AppError =>
  new AppError('secret_not_found', 'there is no secret of that name: `longshore secret list` shows them');
