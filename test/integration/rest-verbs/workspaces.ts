/** Verbs about a workspace: its limits, its credit and usage; and those of an administrator: keys, providers. */
import { expect } from 'vitest';
import type { Json } from '../verbs-fixture.ts';
import type { Verb } from '../verbs-kit.ts';
import { READS_NOTHING } from './parts.ts';
import type { RestParts } from './parts.ts';

/** The networks of the platform's own setting, and one more. */
const NETWORKS = '127.0.0.1,10.9.0.0/16';

export function workspaceVerbs(parts: RestParts): readonly Verb[] {
  const { platform, rest, ownId } = parts;
  const shareNow = async (): Promise<Json> => (await platform().call(rest('GET /api/v1/workspace/{ws}/share'))).json;
  const creditNow = async (): Promise<Json> => (await platform().call(rest('GET /api/v1/credit/{ws}'))).json;

  const tokenLimit = async (): Promise<unknown> => {
    const counts = (await platform().call(rest('GET /api/v1/workspace/{ws}/limits'))).json['counts'] as Json;
    return (counts['tokens'] as Json)['limit'];
  };
  const aWorkspace = async (): Promise<string> =>
    String((await platform().call('POST /api/v1/workspace', { name: 'passing' }, asAdmin())).json['id']);
  const isThere = async (id: string): Promise<boolean> => {
    const answer = await platform().call(`GET /api/v1/workspace/${id}/deletion`, undefined, asAdmin());
    return answer.status === 200 && answer.json['state'] === 'present';
  };
  const asAdmin = () => ({ token: platform().admin.token });
  const signingKeys = async (): Promise<Json[]> =>
    (await platform().call('GET /api/v1/signing-key', undefined, asAdmin())).json['data'] as Json[];
  /** Makes a key that signs no more, and has signed nothing. */
  const settingNow = async (): Promise<Json> =>
    ((await platform().call('GET /api/v1/setting', undefined, asAdmin())).json['data'] as Json[])[0] ?? {};
  const aSigningKey = async (): Promise<string> => {
    const { json } = await platform().call('POST /api/v1/signing-key', undefined, asAdmin());
    await platform().call('POST /api/v1/signing-key', undefined, asAdmin());
    return String(json['id']);
  };
  const aRecording = async (): Promise<string> => {
    await platform().call('POST /api/v1/recording', { seconds: 60 }, asAdmin());
    return 'recording';
  };
  return [
    { name: 'GET /session', line: () => 'GET /session', ok: { via: 'token', is_admin: false }, ...READS_NOTHING },
    { name: 'POST /console/link', line: () => 'POST /console/link', ok: { status: 201 }, ...READS_NOTHING },
    { name: 'GET /workspace/current', line: () => 'GET /workspace/current', ok: { status: 200 }, ...READS_NOTHING },
    {
      name: 'GET /workspace',
      line: () => 'GET /workspace',
      ok: { status: 200 },
      byAdmin: true,
      malformed: { line: 'GET /workspace?limit=-1' },
    },
    {
      name: 'POST /workspace',
      line: () => 'POST /workspace',
      body: () => ({ name: 'third' }),
      ok: { status: 201 },
      byAdmin: true,
    },
    {
      name: 'GET /workspace/{id}/deletion',
      line: (id) => `GET /workspace/${id}/deletion`,
      make: aWorkspace,
      ok: { name: 'passing', state: 'present', deleting_at: null, hold: '', refusal: '', deployments: 0 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      byAdmin: true,
      ...READS_NOTHING,
    },
    {
      name: 'DELETE /workspace/{id}',
      line: (id) => `DELETE /workspace/${id}`,
      make: aWorkspace,
      ok: { name: 'passing', state: 'deleting' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      byAdmin: true,
      done: async (id) => !(await isThere(id)),
    },
    {
      name: 'GET /workspace/{ws}/limits',
      line: (id) => `GET /workspace/${id}/limits`,
      make: ownId,
      ok: {
        usage: { gpu: 0, cpu_millicores: 0, memory_mib: 0, containers: 0, volume_bytes: 0 },
        rate: { rest_per_minute: 600 },
      },
      unknown: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'PUT /workspace/{ws}/limits',
      line: (id) => `PUT /workspace/${id}/limits`,
      body: () => ({ counts: { tokens: 99 } }),
      make: ownId,
      ok: { counts: expect.objectContaining({ tokens: { used: expect.any(Number), limit: 99 } }) },
      unknown: { status: 400 },
      foreign: { status: 401 },
      byAdmin: true,
      done: async () => (await tokenLimit()) === 99,
    },
    {
      name: 'GET /workspace/{ws}/share',
      line: (id) => `GET /workspace/${id}/share`,
      make: ownId,
      ok: { weight: 1, guaranteed: {}, limits: {}, declared_in: null, warnings: [] },
      unknown: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'PUT /workspace/{ws}/share',
      line: (id) => `PUT /workspace/${id}/share`,
      body: () => ({ weight: 2, limits: { h100: 8 } }),
      make: ownId,
      ok: { weight: 2, guaranteed: {}, limits: { H100: 8 } },
      unknown: { status: 400 },
      foreign: { status: 401 },
      byAdmin: true,
      done: async () => (await shareNow())['weight'] === 2,
    },
    { name: 'GET /share', line: () => 'GET /share', ok: { data: [], next: '' }, byAdmin: true, ...READS_NOTHING },
    {
      name: 'GET /share/reservations',
      line: () => 'GET /share/reservations',
      ok: { data: [], next: '' },
      byAdmin: true,
      ...READS_NOTHING,
    },
    {
      name: 'GET /workspace/{ws}/markets',
      line: (id) => `GET /workspace/${id}/markets`,
      make: ownId,
      ok: { data: [], next: '' },
      unknown: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'GET /credit/{ws}',
      line: (id) => `GET /credit/${id}`,
      make: ownId,
      ok: { mode: 'postpaid', held_micros: 0 },
      unknown: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'PUT /credit/{ws}',
      line: (id) => `PUT /credit/${id}`,
      body: () => ({ spend_limit_micros: 7 }),
      make: ownId,
      ok: { spend_limit_micros: 7 },
      unknown: { status: 400 },
      foreign: { status: 401 },
      byAdmin: true,
      done: async () => (await creditNow())['spend_limit_micros'] === 7,
    },
    {
      name: 'POST /credit/{ws}/grant',
      line: (id) => `POST /credit/${id}/grant`,
      body: () => ({ amount_micros: 11 }),
      make: ownId,
      ok: { granted: true, account: expect.objectContaining({ balance_micros: 11 }) },
      unknown: { status: 400 },
      foreign: { status: 401 },
      byAdmin: true,
      done: async () => (await creditNow())['balance_micros'] === 11,
    },
    {
      name: 'GET /credit/{ws}/ledger',
      line: (id) => `GET /credit/${id}/ledger?kind=grant`,
      make: ownId,
      ok: { data: [expect.objectContaining({ kind: 'grant', grant_micros: 11, token_id: null })], next: '' },
      unknown: { status: 401 },
      malformed: { line: 'GET /credit/{ws}/ledger?cursor=odd' },
    },
    {
      name: 'GET /usage/{ws}',
      line: (id) => `GET /usage/${id}`,
      make: ownId,
      ok: { data: [expect.objectContaining({ requests: 0 })], truncated: false },
      unknown: { status: 401 },
      malformed: { line: 'GET /usage/{ws}?from=yesterday' },
    },
    { name: 'GET /signing-key', line: () => 'GET /signing-key', ok: { status: 200 }, byAdmin: true, ...READS_NOTHING },
    { name: 'POST /signing-key', line: () => 'POST /signing-key', ok: { status: 201 }, byAdmin: true },
    {
      name: 'DELETE /signing-key/{id}',
      line: (id) => `DELETE /signing-key/${id}`,
      make: aSigningKey,
      ok: { status: 200 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      byAdmin: true,
      done: async (id) => (await signingKeys()).find((key) => key['id'] === id)?.['retired_at'] !== null,
    },
    { name: 'GET /setting', line: () => 'GET /setting', ok: { status: 200 }, byAdmin: true, ...READS_NOTHING },
    {
      name: 'PUT /setting/{name}',
      line: (id) => `PUT /setting/${id}`,
      body: () => ({ value: NETWORKS }),
      make: async () => 'webhook_allow',
      ok: { name: 'webhook_allow', value: NETWORKS, source: 'database' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      byAdmin: true,
      done: async () => (await settingNow())['value'] === NETWORKS,
    },
    {
      name: 'DELETE /setting/{name}',
      line: (id) => `DELETE /setting/${id}`,
      make: async () => {
        await platform().call('PUT /api/v1/setting/webhook_allow', { value: NETWORKS }, asAdmin());
        return 'webhook_allow';
      },
      ok: { name: 'webhook_allow', source: 'environment' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      byAdmin: true,
      done: async () => (await settingNow())['source'] !== 'database',
    },
    { name: 'GET /recording', line: () => 'GET /recording', ok: { data: [] }, byAdmin: true, ...READS_NOTHING },
    {
      name: 'POST /recording',
      line: () => 'POST /recording',
      body: () => ({ seconds: 60 }),
      ok: { state: 'recording', reason: '' },
      byAdmin: true,
    },
    {
      name: 'DELETE /recording',
      line: () => 'DELETE /recording',
      make: aRecording,
      ok: { state: 'ended', reason: 'stopped' },
      byAdmin: true,
      ...READS_NOTHING,
    },
    {
      name: 'POST /container/{containerId}/preempt',
      line: (id) => `POST /container/${id}/preempt`,
      make: parts.aContainer,
      body: () => ({ end_calls: false }),
      // No machine has it yet.
      ok: { status: 409 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      byAdmin: true,
    },
    {
      name: 'GET /gpu',
      line: () => 'GET /gpu',
      ok: { data: [], next: '', counts: expect.any(Object) },
      ...READS_NOTHING,
    },
    {
      name: 'GET /gpu-map',
      line: () => 'GET /gpu-map',
      ok: { data: [], next: '', counts: expect.any(Object), pools: [] },
      ...READS_NOTHING,
    },
    { name: 'GET /alerts', line: () => 'GET /alerts', ok: { status: 200 }, byAdmin: true, ...READS_NOTHING },
    { name: 'GET /waiting', line: () => 'GET /waiting', ok: { status: 200 }, byAdmin: true, ...READS_NOTHING },
    {
      name: 'GET /workspace/{ws}/waiting',
      line: () => 'GET /workspace/{ws}/waiting',
      ok: { status: 200 },
      ...READS_NOTHING,
    },
    { name: 'GET /provider', line: () => 'GET /provider', ok: { status: 200 }, byAdmin: true, ...READS_NOTHING },
    {
      name: 'POST /provider/{name}/check',
      line: (id) => `POST /provider/${id}/check`,
      make: async () => 'cloud',
      ok: { ok: true, name: 'cloud', instances: 0 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      byAdmin: true,
    },
  ];
}
