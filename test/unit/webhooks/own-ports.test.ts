import { expect, test } from 'vitest';
import { ownPorts } from '../../../scheduler/tasks/webhooks/own-ports.ts';

const BASE = { LONGSHORE_HTTP_ADDRESS: '127.0.0.1:1994', LONGSHORE_AGENT_ADDRESS: '[::1]:1995' };

test('ports of services and stores are closed, those that settings name and the usual ones', () => {
  expect([...ownPorts(BASE)].toSorted((a, b) => a - b)).toEqual([1993, 1994, 1995, 5432, 6379, 9464, 26379]);
  const ports = ownPorts({
    ...BASE,
    DATABASE_URL: 'postgres://user:p%40ss@db-1:6001,db-2:6002/longshore',
    REDIS_URL: 'redis+sentinel://:secret@10.0.0.1:6003,10.0.0.2/main',
    LONGSHORE_GRPC_ADDRESS: '127.0.0.1:7993',
    LONGSHORE_REGISTRY: 'http://127.0.0.1:5000',
    LONGSHORE_OBJECTS_ENDPOINT: 'https://s3.local',
    LONGSHORE_EXPORT_OTLP: 'http://collector:4318/v1',
  });
  for (const port of [7993, 6001, 6002, 6003, 5000, 443, 4318]) expect(ports, String(port)).toContain(port);
  expect(ownPorts({ ...BASE, LONGSHORE_REGISTRY: 'unix:///run/registry.sock' }).size).toBe(7);
});
