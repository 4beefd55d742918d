/** GPU models the interface knows, in its spelling; names are compared without regard to case. */
export const GPU_MODELS = [
  'A10',
  'A10G',
  'A16',
  'A30',
  'A40',
  'A100',
  'A100-40',
  'A100-80',
  'A4000',
  'A5000',
  'A6000',
  'L4',
  'L40',
  'L40S',
  'T4',
  'V100',
  'V100-32',
  'H100',
  'H200',
  'GH200',
  'B200',
  'B300',
  'GAUDI2',
  'RTX4000Ada',
  'RTX4090',
  'RTX5090',
  'RTX6000',
  'RTX6000Ada',
  'RTXPro6000',
] as const;
export const ANY_GPU = 'any';

/** States of a device: only a healthy one is leased. `unprobed`: no program has shown yet that it works. */
export const GPU_STATES = ['healthy', 'unprobed', 'suspect', 'unhealthy', 'lost', 'quarantined'] as const;
export type GpuState = (typeof GPU_STATES)[number];

/** Orders of an operator about one GPU of a machine. */
export const GPU_ACTIONS = ['exclude', 'return', 'reset', 'forget'] as const;
export type GpuAction = (typeof GPU_ACTIONS)[number];

const BY_LOWER: ReadonlyMap<string, string> = new Map(
  [...GPU_MODELS, ANY_GPU].map((name) => [name.toLowerCase(), name]),
);

/** The interface's spelling of a model's name; undefined for unknown models. */
export const knownGpu = (name: string): string | undefined => BY_LOWER.get(name.toLowerCase());

/** The name of a MIG slice of a known model (`H100-MIG-3g.40gb`), in the agents' spelling; undefined: another name. */
export function knownSlice(name: string): string | undefined {
  const [, model = '', profile = ''] = /^(.+)-MIG-((?:\d+c\.)?\d+g\.\d+gb(?:[+-][a-z0-9.]+)*)$/i.exec(name) ?? [];
  const known = knownGpu(model);
  return known === undefined || known === ANY_GPU ? undefined : `${known}-MIG-${profile.toLowerCase()}`;
}

/**
 * Maps the driver's names to the interface's; the first match
 * counts. A virtual GPU profile (`A10-24Q`) is no whole device.
 */
const NAMES: readonly (readonly [RegExp, string])[] = [
  [/^GH200\b/, 'GH200'],
  [/^(B300|B200|H200|H100)\b/, '$1'],
  [/^RTX PRO 6000\b/i, 'RTXPro6000'],
  [/^RTX 6000 Ada\b/i, 'RTX6000Ada'],
  [/^RTX 4000 (?:SFF )?Ada\b/i, 'RTX4000Ada'],
  [/^(?:Quadro )?RTX 6000(?:\/8000)?$/i, 'RTX6000'],
  [/^RTX (4090|5090)$/, 'RTX$1'],
  [/^RTX (A4000|A5000|A6000)$/, '$1'],
  [/^(A10G|A10|A16|A30|A40|L40S|L40|L4|T4)(?![\w]|-\d+[A-CQ])/, '$1'],
];

/**
 * The model of a device in the interface's spelling: `H100` for `NVIDIA H100 80GB HBM3`,
 * `A100-80` for `NVIDIA A100-SXM4-80GB`. An unknown name is shortened, without spaces.
 * A result passed in again stays the same.
 * @param memoryMib - separates sizes where the name does not
 */
export function gpuModelOf(name: string, memoryMib = 0): string {
  const plain = name
    .replace(/^NVIDIA\s+/i, '')
    .replace(/^(?:GeForce|Tesla|GRID)\s+/i, '')
    .trim();
  const known = knownGpu(plain);
  if (known !== undefined && known !== ANY_GPU) return known;
  const gib = Number(/\b(\d+)\s?GB\b/i.exec(plain)?.[1] ?? Math.round(memoryMib / 1024));
  if (/^A100\b(?!-\d+[A-CQ])/.test(plain)) return gib === 0 ? 'A100' : gib > 60 ? 'A100-80' : 'A100-40';
  if (/^V100S?\b(?!-\d+[A-CQ])/.test(plain)) return gib > 24 ? 'V100-32' : 'V100';
  for (const [pattern, model] of NAMES) {
    const match = pattern.exec(plain);
    if (match !== null) return model.replace('$1', match[1] ?? '');
  }
  return plain
    .replace(/[^A-Za-z0-9.]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 64);
}

/** Compute capability of the models; of another one only the driver knows it. Source: NVIDIA's list of CUDA GPUs. */
const COMPUTE_CAPS: Readonly<Record<string, readonly string[]>> = {
  '7.0': ['V100', 'V100-32'],
  '7.5': ['T4', 'RTX6000'],
  '8.0': ['A30', 'A100', 'A100-40', 'A100-80'],
  '8.6': ['A10', 'A10G', 'A16', 'A40', 'A4000', 'A5000', 'A6000'],
  '8.9': ['L4', 'L40', 'L40S', 'RTX4000Ada', 'RTX4090', 'RTX6000Ada'],
  '9.0': ['H100', 'H200', 'GH200'],
  '10.0': ['B200'],
  '10.3': ['B300'],
  '12.0': ['RTX5090', 'RTXPro6000'],
};
const CAP_BY_LOWER: ReadonlyMap<string, string> = new Map(
  Object.entries(COMPUTE_CAPS).flatMap(([cap, models]) => models.map((model) => [model.toLowerCase(), cap] as const)),
);

/** Compute capability of a model or a MIG slice of it, such as `8.9`; empty: not known here. */
export const computeCapOf = (model: string): string =>
  CAP_BY_LOWER.get(model.toLowerCase().replace(/-mig-.*$/, '')) ?? '';

/**
 * Whether a device of that model has one of these names. `any` matches every model; a name without its size matches
 * every size (`A100` matches an `A100-80`).
 */
export function modelMatches(model: string, wanted: readonly string[]): boolean {
  const have = model.toLowerCase();
  return wanted.some((want) => {
    const asked = want.toLowerCase();
    if (asked === ANY_GPU || asked === have) return true;
    return have.startsWith(`${asked}-`) && /^\d+$/.test(have.slice(asked.length + 1));
  });
}
