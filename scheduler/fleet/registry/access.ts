// Rights to pull and push built images, given to one machine at a time.
// Invariant: a machine of a workspace's own pool gets rights for that workspace alone.
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { builtRepository, builtTag } from '#shared/domain/built-images.ts';
import type { PullImageResponse, PushTo, RegistryAuth } from '#shared/protocol/generated/messages.ts';
import type { Db } from '../../stores/store/db.ts';
import { imageById } from '../../stores/store/queries/images.ts';
import type { SigningKeys } from '../../workspaces/identity/jwt.ts';
import type { Machine } from '../machine.ts';
import type { Allowance } from './allowance.ts';
import type { RegistryRight } from './requests.ts';
import { issueToken } from './tokens.ts';

export interface RegistryAccessParts {
  readonly db: Db;
  readonly keys: SigningKeys;
  readonly machines: { get(machineId: MachineId): Machine | undefined };
  readonly allowance: Pick<Allowance, 'problem'>;
  readonly nowMs: () => number;
}

const USER = 'longshore';

export class RegistryAccess {
  readonly #parts: RegistryAccessParts;

  constructor(parts: RegistryAccessParts) {
    this.#parts = parts;
  }

  /** The way to an image for a machine that was told to have it; undefined: there is none. */
  async toPull(
    machineId: MachineId,
    workspaceId: WorkspaceId,
    image: string,
  ): Promise<Pick<PullImageResponse, 'auth' | 'builtFrom'> | undefined> {
    if (!this.#mayServe(machineId, workspaceId)) return undefined;
    const row = await imageById(this.#parts.db, workspaceId, image);
    if (row === undefined || row.digest === '') return undefined;
    const repository = builtRepository(workspaceId);
    const auth = await this.#auth(machineId, { action: 'pull', repository, reference: row.digest });
    return { builtFrom: `${repository}@${row.digest}`, auth };
  }

  /** The place for an image that a machine has built. A text says why there is none. */
  async toPush(machineId: MachineId, workspaceId: WorkspaceId, image: string): Promise<PushTo | string> {
    if (!this.#mayServe(machineId, workspaceId)) return `machine ${machineId} is not for this workspace`;
    const problem = await this.#parts.allowance.problem(workspaceId);
    if (problem !== undefined) return problem;
    const [repository, tag] = [builtRepository(workspaceId), builtTag(image)];
    return {
      repository,
      tag,
      auth: await this.#auth(machineId, { action: 'push', repository, reference: tag }),
    };
  }

  #mayServe(machineId: MachineId, workspaceId: WorkspaceId): boolean {
    const machine = this.#parts.machines.get(machineId);
    if (machine?.inventory?.registry !== true) return false;
    const owner = machine.row.poolWorkspaceId;
    return owner === null || owner === workspaceId;
  }

  async #auth(machineId: MachineId, right: RegistryRight): Promise<RegistryAuth> {
    const password = await issueToken(this.#parts.keys, machineId, right, this.#parts.nowMs());
    return { serverAddress: '', username: USER, password, identityToken: '' };
  }
}
