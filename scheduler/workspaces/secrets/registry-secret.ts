// Secrets that are credentials of an image registry: known by their
// name, with a value of one shape. No stub may name them. Pure.
import { REGISTRY_SECRET_PREFIX, RegistrySecret } from '#shared/api/rest/secrets.ts';
import { registryOf } from '#shared/domain/image-reference.ts';
import { Value } from 'typebox/value';

export const isRegistrySecret = (name: string): boolean => name.startsWith(REGISTRY_SECRET_PREFIX);

/** Reads a registry credential. @returns the credential, or a sentence that names the mistake without the content */
export function readRegistrySecret(value: string): RegistrySecret | string {
  let parsed: unknown;
  try {
    parsed = JSON.parse(value);
  } catch {
    return 'value must be JSON: {"registry", "username", "password", "repositories"}';
  }
  if (!Value.Check(RegistrySecret, parsed)) {
    const [first] = Value.Errors(RegistrySecret, parsed);
    return `value must be {"registry", "username", "password", "repositories"}: ${first === undefined ? 'it is not' : `${first.instancePath} ${first.message}`.trim()}`;
  }
  const registry = registryOf(`${parsed.registry}/x/y`);
  if (registry !== parsed.registry)
    return `value.registry must be the host of a registry, as image names begin with it, or docker.io`;
  return parsed;
}
