// The order in which the backends of a model are tried: levels rising, and within a level by weight and chance. Pure.
import type { ModelBackend } from '#shared/api/rest/models.ts';

/** @param random - numbers from 0 to below 1 */
export function backendOrder(backends: readonly ModelBackend[], random: () => number): readonly ModelBackend[] {
  const levels = [...new Set(backends.map(({ level = 0 }) => level))].toSorted((a, b) => a - b);
  return levels.flatMap((level) =>
    drawn(
      backends.filter((one) => (one.level ?? 0) === level),
      random,
    ),
  );
}

function drawn(backends: readonly ModelBackend[], random: () => number): ModelBackend[] {
  const left = [...backends];
  const order: ModelBackend[] = [];
  while (left.length > 0) {
    const sum = left.reduce((total, { weight = 1 }) => total + weight, 0);
    let point = random() * sum;
    let at = left.findIndex(({ weight = 1 }) => (point -= weight) < 0);
    if (at === -1) at = left.length - 1;
    order.push(...left.splice(at, 1));
  }
  return order;
}
