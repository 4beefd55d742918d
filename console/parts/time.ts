// Times for people: spans and moments, from RFC 3339.

/** A span such as `4 m`. */
export function spanOf(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${Math.round(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} m`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`;
}

/** How long ago; empty: never. */
export const agoOf = (time: string | null, nowMs = Date.now()): string =>
  time === null || time === '' ? '' : `${spanOf(nowMs - Date.parse(time))} ago`;

/** The span between two moments; the present stands for an end that has not come. */
export const between = (from: string | null, to: string | null): string =>
  from === null ? '' : spanOf((to === null ? Date.now() : Date.parse(to)) - Date.parse(from));

/** A moment by the clock of this machine. */
export const clockOf = (time: string): string =>
  new Date(time).toLocaleTimeString(undefined, {
    hour12: false,
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
  });

/** Moments in a text, for `split`. */
export const MOMENT = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)/;

/** A moment by the clock of this machine, with its day unless that is today. */
export function momentOf(time: string, nowMs = Date.now()): string {
  const at = new Date(time);
  const isToday = at.toDateString() === new Date(nowMs).toDateString();
  return isToday ? clockOf(time) : `${at.toLocaleDateString()} ${clockOf(time)}`;
}

/** A moment with its date and its time zone. */
export const zonedOf = (time: string): string =>
  new Date(time).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'long' });
