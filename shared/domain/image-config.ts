/**
 * Bounds on the configuration of an image: labels, variables, ports, volumes. A registry's image may bring any, and the
 * engine reads all of it for each list of images and of containers. Pure.
 */

/** Ports that a Dockerfile may name; nothing here reads them. */
export const MOST_PORTS = 64;
/** Ports that an image may name. Published images of media servers name ranges of up to 17,400 ports. */
const MOST_PORTS_OF_IMAGE = 20_000;
/** Volumes that an image may declare: each is a directory of the engine's for every container of it. */
export const MOST_VOLUMES = 16;
/** Labels of an image, and its variables. Images of buildpacks have labels of some ten thousand bytes. */
const MOST_ENTRIES = 1000;
const MOST_BYTES = 512 * 1024;

/** The part of the engine's answer that has a bound of its own. */
export interface CountedConfig {
  readonly Labels?: object | null | undefined;
  readonly Env?: readonly string[] | null | undefined;
  readonly ExposedPorts?: object | null | undefined;
  readonly Volumes?: object | null | undefined;
}

/** @returns why an image with this configuration is not used, behind its name; undefined: it may be used */
export function imageConfigProblem(config: CountedConfig): string | undefined {
  const counts = [
    ['labels', Object.keys(config.Labels ?? {}).length, MOST_ENTRIES],
    ['variables (ENV)', config.Env?.length ?? 0, MOST_ENTRIES],
    ['ports (EXPOSE)', Object.keys(config.ExposedPorts ?? {}).length, MOST_PORTS_OF_IMAGE],
    ['volumes (VOLUME)', Object.keys(config.Volumes ?? {}).length, MOST_VOLUMES],
  ] as const;
  const over = counts.find(([, count, most]) => count > most);
  if (over !== undefined)
    return `has ${over[1]} ${over[0]}, and an image may have ${over[2]}: make it again with fewer`;
  const bytes = Buffer.byteLength(JSON.stringify(config));
  if (bytes <= MOST_BYTES) return undefined;
  return `has a configuration of ${bytes} bytes (labels, variables and others), and an image may have ${MOST_BYTES}: make it again with shorter ones`;
}
