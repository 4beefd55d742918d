// Numbers with their word. Pure.

/** Such as `1 machine` and `2 machines`. */
export const counted = (count: number, word: string): string => `${count} ${word}${count === 1 ? '' : 's'}`;

/** Containers that are ready, of those that are wanted. More are ready than are wanted while some are kept warm. */
export const readyOf = (ready: number, wanted: number): string =>
  ready > wanted ? `${ready}` : `${ready} of ${wanted}`;
