/** Longest life of an entry of a map, an item of a queue or a signal, and the life of those that name none. Pure. */
export const MAX_LIFE_SECONDS = 7 * 86_400;
