/** Longest recording of placement. */
export const MOST_RECORDING_SECONDS = 24 * 3600;
