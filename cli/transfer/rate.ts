// How far a transfer is, for people: bytes, their rate, and the time that is left at this rate.
import { bytesOf } from '../format.ts';

/** The rate of the first moment says nothing about the rest. */
const LEAST_SECONDS = 0.2;
const SETTLED_SECONDS = 1;

/** Such as `12.0 MiB of 143.1 MiB, 8.4 MiB/s, 15 s left`. Pure. @param seconds - since the transfer began */
export function rateText(bytes: number, totalBytes: number, seconds: number): string {
  const rate = bytes / Math.max(LEAST_SECONDS, seconds);
  const left =
    seconds < SETTLED_SECONDS || rate <= 0 || bytes >= totalBytes ? '' : `, ${leftText((totalBytes - bytes) / rate)}`;
  return `${bytesOf(bytes)} of ${bytesOf(totalBytes)}, ${bytesOf(rate)}/s${left}`;
}

function leftText(seconds: number): string {
  if (seconds < 90) return `${Math.ceil(seconds)} s left`;
  return seconds < 5400 ? `${Math.ceil(seconds / 60)} min left` : `${(seconds / 3600).toFixed(1)} h left`;
}
