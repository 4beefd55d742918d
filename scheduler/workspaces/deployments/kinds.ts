// Kinds of stubs, and the rules of each.
import { kindOf } from '#shared/domain/status.ts';

export const STUB_TYPES = [
  'endpoint',
  'endpoint/deployment',
  'endpoint/serve',
  'asgi',
  'asgi/deployment',
  'asgi/serve',
  'taskqueue',
  'taskqueue/deployment',
  'taskqueue/serve',
  'function',
  'function/deployment',
  'function/serve',
  'schedule',
  'schedule/deployment',
  'pod',
  'pod/deployment',
  'pod/run',
  'bot',
  'bot/deployment',
  'bot/serve',
  'container',
  'shell',
  'sandbox',
] as const;

const PYTHON_MINORS = [8, 9, 10, 11, 12, 13, 14];

export const PYTHON_VERSIONS: readonly string[] = [
  'python3',
  ...PYTHON_MINORS.map((minor) => `python3.${minor}`),
  ...PYTHON_MINORS.filter((minor) => minor <= 12).map((minor) => `micromamba3.${minor}`),
];

export interface KindRules {
  /** Whether callers wait: then there are no retries. */
  readonly sync: boolean;
  /** Whether every call has an execution limit. */
  readonly limited: boolean;
  readonly ttlSeconds: number;
  readonly keepWarmSeconds: number;
  /** Whether a Python function serves it, which `handler` names. */
  readonly handler: boolean;
  /** Whether each call gets a container, up to the cap; such a kind is never public. */
  readonly perCall: boolean;
}

const COMMON = { sync: false, limited: false, handler: false, perCall: false } as const;
export const OTHER_KIND: KindRules = { ...COMMON, ttlSeconds: 0, keepWarmSeconds: 0 };

export const KIND_RULES: Readonly<Record<string, KindRules>> = {
  endpoint: { ...COMMON, sync: true, limited: true, ttlSeconds: 600, keepWarmSeconds: 180, handler: true },
  asgi: { ...COMMON, sync: true, limited: true, ttlSeconds: 600, keepWarmSeconds: 180, handler: true },
  taskqueue: { ...COMMON, ttlSeconds: 7_200, keepWarmSeconds: 10, handler: true },
  function: { ...COMMON, ttlSeconds: 43_200, keepWarmSeconds: 0, handler: true, perCall: true },
  schedule: { ...COMMON, ttlSeconds: 43_200, keepWarmSeconds: 0, handler: true, perCall: true },
  pod: { ...COMMON, sync: true, ttlSeconds: 600, keepWarmSeconds: 600 },
  sandbox: { ...COMMON, ttlSeconds: 0, keepWarmSeconds: 600 },
};

/** Whether a supervisor runs in its containers, and any program: no Python function serves it. */
export const isSupervised = (kind: string): boolean => kind === 'pod' || kind === 'sandbox';

/** Whether its containers are made by CreatePod, and by nothing else. */
export const isMadeByHand = (stubType: string): boolean =>
  isSupervised(kindOf(stubType)) && stubType !== 'pod/deployment';

export const isSyncKind = (kind: string): boolean => KIND_RULES[kind]?.sync === true;
