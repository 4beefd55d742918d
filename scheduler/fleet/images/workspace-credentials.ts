// The credentials with which an image is pulled for a workspace:
// its own, kept as secrets, before those that the operator shares.
// Invariant: a credential is used for the repositories that it lists, and for its own workspace.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { pathOf, registryOf } from '#shared/domain/image-reference.ts';
import type { RegistryAuth } from '#shared/protocol/generated/messages.ts';
import type { Secrets } from '../../workspaces/secrets/service.ts';
import type { RegistryCredentials } from './credentials.ts';
import { isListed } from './repositories.ts';

export class ImageCredentials {
  readonly #shared: Pick<RegistryCredentials, 'of'>;
  readonly #secrets: Pick<Secrets, 'registries'>;

  constructor(shared: Pick<RegistryCredentials, 'of'>, secrets: Pick<Secrets, 'registries'>) {
    this.#shared = shared;
    this.#secrets = secrets;
  }

  /**
   * Credentials for a pull of the image.
   * @param workspaceId - empty: an agent that does not name the image's
   * workspace, and so gets only credentials that the operator shares with all
   * @param machineOwner - null: the operator; undefined: unknown. The owner of a machine can read the agent's messages,
   * so a workspace's own machine gets that workspace's credentials alone
   */
  async of(
    workspaceId: WorkspaceId | '',
    image: string,
    machineOwner: WorkspaceId | null | undefined,
  ): Promise<RegistryAuth | undefined> {
    if (machineOwner === undefined || (machineOwner !== null && machineOwner !== workspaceId)) return undefined;
    const own = workspaceId === '' ? undefined : await this.#ownOf(workspaceId, image);
    return own ?? (machineOwner === null ? await this.#shared.of(image, workspaceId) : undefined);
  }

  async #ownOf(workspaceId: WorkspaceId, image: string): Promise<RegistryAuth | undefined> {
    const [registry, repository] = [registryOf(image), pathOf(image)];
    const found = (await this.#secrets.registries(workspaceId)).find(
      (one) => one.registry === registry && isListed(one.repositories, repository),
    );
    return found && { serverAddress: registry, username: found.username, password: found.password, identityToken: '' };
  }
}
