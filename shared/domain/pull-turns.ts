// Words by which an agent tells that a container's image waits in line. Drains and rollouts read them. Pure.

const WAITS = 'waits for its turn to pull ';

/** @param place - from 1; 0: not known yet */
export const turnText = (reference: string, place: number, waiting: number): string =>
  `${WAITS}${reference}${place > 0 ? `: place ${place} of ${waiting}` : ''}`;

/** Whether the progress of a pull is that its machine waits in line. */
export const waitsForTurn = (text: string): boolean => text.startsWith(WAITS);
