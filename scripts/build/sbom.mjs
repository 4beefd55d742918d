/**
 * The list of what a release is made of, in CycloneDX: npm makes it from the lock file. Times and random numbers are
 * replaced, so that two builds give the same bytes.
 */
import { createHash } from 'node:crypto';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { repositoryRoot } from '../setup/paths.mjs';
import { SetupError } from '../setup/log.mjs';
import { EPOCH_SECONDS } from './tree.mjs';

const LONGEST_MS = 60_000;
const ARGS = ['sbom', '--package-lock-only', '--omit=dev', '--sbom-format=cyclonedx'];

/**
 * @param {string} version - of the release
 * @param {string} arch - as Node names it: the Node of other architectures is not in the release
 */
export async function bomOf(version, arch) {
  let text;
  try {
    ({ stdout: text } = await promisify(execFile)('npm', ARGS, {
      cwd: repositoryRoot,
      timeout: LONGEST_MS,
      maxBuffer: 2 ** 26,
    }));
  } catch (error) {
    throw new SetupError(`npm could not list what the release is made of: ${String(error.message).slice(0, 500)}`);
  }
  return reproducible(JSON.parse(text), { version, arch });
}

/**
 * The list of a build, without what differs between two builds, and without programs of other architectures.
 * @param {object} bom - as npm makes it
 * @param {{ version: string, arch: string, epochSeconds?: number }} release
 */
export function reproducible(
  bom,
  { version, arch, epochSeconds = Number(process.env.SOURCE_DATE_EPOCH ?? EPOCH_SECONDS) },
) {
  const isOthers = (ref) => ref.startsWith('node-linux-') && !ref.startsWith(`node-linux-${arch}@`);
  const own = bom.metadata.component;
  const component = { ...own, type: 'application', name: 'longshore', version };
  const made = {
    ...bom,
    serialNumber: undefined,
    metadata: {
      ...bom.metadata,
      timestamp: new Date(epochSeconds * 1000).toISOString(),
      component,
    },
    components: bom.components.filter((one) => !isOthers(one['bom-ref'])),
    dependencies: bom.dependencies
      .filter(({ ref }) => !isOthers(ref))
      .map((one) => ({ ...one, dependsOn: (one.dependsOn ?? []).filter((ref) => !isOthers(ref)) })),
  };
  const hash = createHash('sha256').update(JSON.stringify(made)).digest('hex');
  const uuid = `${hash.slice(0, 8)}-${hash.slice(8, 12)}-5${hash.slice(13, 16)}-8${hash.slice(17, 20)}-${hash.slice(20, 32)}`;
  return { ...made, serialNumber: `urn:uuid:${uuid}` };
}
