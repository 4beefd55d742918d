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

const BY_LOWER: ReadonlyMap<string, string> = new Map(
  [...GPU_MODELS, ANY_GPU].map((name) => [name.toLowerCase(), name]),
);

/** Reads `A10G, t4` in order of preference; names nobody knows come back in `unknown` too. Empty and NO_GPU mean none. */
export function parseGpus(text: string): { readonly gpus: readonly string[]; readonly unknown: readonly string[] } {
  const gpus: string[] = [];
  const unknown: string[] = [];
  for (const part of text.split(',')) {
    const name = part.trim();
    if (name === '' || name.toUpperCase() === 'NO_GPU') continue;
    const known = BY_LOWER.get(name.toLowerCase());
    if (known === undefined) unknown.push(name);
    const spelled = known ?? name;
    if (!gpus.includes(spelled)) gpus.push(spelled);
  }
  return { gpus, unknown };
}
