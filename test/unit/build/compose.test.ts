// The Compose file: the settings that it gives exist, images have tags, and secrets are in the file beside it.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseYaml } from '@redocly/openapi-core';
import { expect, test } from 'vitest';
import { SchedulerSettings } from '#scheduler/config.ts';
import { loadConfig } from '#shared/config.ts';

const folder = join(import.meta.dirname, '../../../deploy/compose');
interface Service {
  readonly image: string;
  readonly environment?: Readonly<Record<string, string>>;
  readonly env_file?: string;
  readonly healthcheck?: object;
  readonly volumes: readonly string[];
  readonly ports?: readonly string[];
}
const { services, volumes } = parseYaml(readFileSync(join(folder, 'compose.yaml'), 'utf8')) as {
  readonly services: Readonly<Record<string, Service>>;
  readonly volumes: Readonly<Record<string, null>>;
};
const example = Object.fromEntries(
  readFileSync(join(folder, 'longshore.env.example'), 'utf8')
    .split('\n')
    .filter((line) => /^[A-Z]/.test(line))
    .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
);

test('images have a version, data has volumes, and servers are healthy before the scheduler starts', () => {
  for (const [name, service] of Object.entries(services)) {
    expect(service.image, name).toMatch(/:(?!latest)[^:]+/);
    for (const volume of service.volumes) expect(Object.keys(volumes)).toContain(volume.split(':')[0]);
    if (name !== 'scheduler') expect(service.healthcheck, name).toBeDefined();
  }
  expect(services['scheduler']).toMatchObject({
    depends_on: { postgres: { condition: 'service_healthy' }, redis: { condition: 'service_healthy' } },
  });
});

test('clear HTTP is published on loopback alone', () => {
  expect(services['scheduler']?.ports?.find((port) => port.endsWith(':1994'))).toMatch(/^127\.0\.0\.1:/);
});

test('the scheduler takes the settings, and secrets are in the example with no value', () => {
  const { POSTGRES_PASSWORD: password, ...ours } = example;
  expect(password).toBe('');
  expect(ours['LONGSHORE_BOOTSTRAP_TOKEN']).toBe('');
  const env = { ...services['scheduler']?.environment, ...ours, LONGSHORE_DATA_DIR: '/var/lib/longshore' };
  expect(loadConfig(SchedulerSettings, env, { known: [] })).toMatchObject({
    LONGSHORE_HTTP_PLAINTEXT: 'allow',
    REDIS_URL: 'redis://redis:6379',
  });
});
