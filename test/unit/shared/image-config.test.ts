// Bounds on the configuration that an image of a registry brings.
import { expect, test } from 'vitest';
import { imageConfigProblem } from '#shared/domain/image-config.ts';

const many = (count: number): Record<string, string> =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [`name-${at}`, '']));

test.for([
  { config: { Labels: many(1001) }, why: /1001 labels/ },
  { config: { Env: Object.keys(many(1001)) }, why: /1001 variables/ },
  { config: { ExposedPorts: many(20_001) }, why: /20001 ports/ },
  { config: { Volumes: many(17) }, why: /17 volumes/ },
  { config: { Labels: { a: 'x'.repeat(600_000) } }, why: /configuration of 6\d{5} bytes/ },
  { config: { Env: [`A=${'x'.repeat(600_000)}`] }, why: /configuration of 6\d{5} bytes/ },
  { config: { Cmd: ['x'.repeat(600_000)] }, why: /configuration of 6\d{5} bytes/ },
  { config: { Volumes: { ['/x'.repeat(300_000)]: {} } }, why: /configuration of 6\d{5} bytes/ },
])('an image is not used that has too much: $why', ({ config, why }) => {
  expect(imageConfigProblem(config)).toMatch(why);
});

test('an image of a media server is used, with its range of ports', () => {
  const ports = Array.from({ length: 17_400 }, (_, at) => [`${at + 10_000}/udp`, {}]);
  expect(imageConfigProblem({ ExposedPorts: Object.fromEntries(ports) })).toBeUndefined();
});

test('usual images are used, also those that name nothing', () => {
  expect(imageConfigProblem({})).toBeUndefined();
  expect(imageConfigProblem({ Labels: null, Env: null, ExposedPorts: null, Volumes: null })).toBeUndefined();
  const config = { Labels: { 'io.buildpacks.builder.metadata': 'x'.repeat(150_000) }, ExposedPorts: many(64) };
  expect(imageConfigProblem({ ...config, Volumes: many(16), Env: ['PATH=/bin'] })).toBeUndefined();
});
