// Kinds of stubs, and the rules of each.

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
  /** Whether callers wait: then the execution limit is bounded, and there are no retries. */
  readonly sync: boolean;
  readonly ttlSeconds: number;
  readonly keepWarmSeconds: number;
  /** Whether a Python function serves it, which `handler` names. */
  readonly handler: boolean;
  /** Whether each call gets a container, up to the cap; such a kind is never public. */
  readonly perCall: boolean;
}

export const OTHER_KIND: KindRules = { sync: false, ttlSeconds: 0, keepWarmSeconds: 0, handler: false, perCall: false };

export const KIND_RULES: Readonly<Record<string, KindRules>> = {
  endpoint: { sync: true, ttlSeconds: 600, keepWarmSeconds: 180, handler: true, perCall: false },
  asgi: { sync: true, ttlSeconds: 600, keepWarmSeconds: 180, handler: true, perCall: false },
  taskqueue: { sync: false, ttlSeconds: 7_200, keepWarmSeconds: 10, handler: true, perCall: false },
  function: { sync: false, ttlSeconds: 43_200, keepWarmSeconds: 0, handler: true, perCall: true },
  schedule: { sync: false, ttlSeconds: 43_200, keepWarmSeconds: 0, handler: true, perCall: true },
};

export const isSyncKind = (kind: string): boolean => KIND_RULES[kind]?.sync === true;
