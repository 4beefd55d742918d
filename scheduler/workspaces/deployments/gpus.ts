import { MOST_GPU_TERMS, gpuTextsOf, readGpuTerm } from '#shared/domain/gpu-terms.ts';
import { knownGpu, knownSlice } from '#shared/domain/gpus.ts';

export interface ParsedGpus {
  /** Terms in one spelling. */
  readonly gpus: readonly string[];
  /** Names of models that are not known. */
  readonly unknown: readonly string[];
  /** Sentences that refuse the request. */
  readonly problems: readonly string[];
}

/** Reads `A10G, t4` or `H100|A100:>=40GiB` in order of preference. Empty and NO_GPU mean none. */
export function parseGpus(text: string): ParsedGpus {
  const gpus = new Set<string>();
  const unknown = new Set<string>();
  const problems: string[] = [];
  for (const one of gpuTextsOf(text)) {
    if (one.toUpperCase() === 'NO_GPU') continue;
    const term = readGpuTerm(one);
    if (typeof term === 'string') {
      problems.push(`gpu: ${term}`);
      continue;
    }
    gpus.add(term.text);
    if (knownGpu(term.model) === undefined && knownSlice(term.model) === undefined) unknown.add(term.model);
  }
  if (gpus.size > MOST_GPU_TERMS) problems.push(`gpu: names more than ${MOST_GPU_TERMS} alternatives`);
  return { gpus: [...gpus], unknown: [...unknown], problems: problems.slice(0, MOST_PROBLEMS) };
}

const MOST_PROBLEMS = 3;
