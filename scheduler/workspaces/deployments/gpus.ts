import { knownGpu, knownSlice } from '#shared/domain/gpus.ts';

/**
 * Reads `A10G, t4` in order of preference; names that are not
 * known come back in `unknown` too. Empty and NO_GPU mean none.
 */
export function parseGpus(text: string): { readonly gpus: readonly string[]; readonly unknown: readonly string[] } {
  const gpus: string[] = [];
  const unknown: string[] = [];
  for (const part of text.split(',')) {
    const name = part.trim();
    if (name === '' || name.toUpperCase() === 'NO_GPU') continue;
    const known = knownGpu(name) ?? knownSlice(name);
    if (known === undefined) unknown.push(name);
    const spelled = known ?? name;
    if (!gpus.includes(spelled)) gpus.push(spelled);
  }
  return { gpus, unknown };
}
