// Log lines as they come: a page of the newest, then the topic of logs from there on. Lines wait for a frame of the
// screen, so that a thousand a second are drawn sixty times at most.
// Invariant: a bounded number of lines is kept.
import { useEffect, useState } from 'preact/hooks';
import type { LogPage, LogRecord } from '#shared/api/rest/logs.ts';
import type { Static } from 'typebox';
import { queryOf, rest } from '../api/client.ts';
import { followLines, whileVisible } from './live.ts';

/** Lines that a screen keeps. */
export const MOST_KEPT = 5_000;
const FIRST_PAGE = 200;
const READ_AGAIN_MS = 2_000;

export interface LiveLines {
  readonly lines: readonly LogRecord[];
  readonly state: 'loading' | 'live' | 'lost';
  /** Why it is lost; empty: it is not. */
  readonly why: string;
}

const EMPTY: LiveLines = { lines: [], state: 'loading', why: '' };

/** @param about - query of the lines: a deployment, a task, a text */
export function useLiveLines(workspaceId: string, about: Readonly<Record<string, string | undefined>>): LiveLines {
  const [shown, setShown] = useState<LiveLines>(EMPTY);
  const key = `${workspaceId}${queryOf(about)}`;
  useEffect(() => {
    setShown(EMPTY);
    const screen = new AbortController();
    let lines: LogRecord[] = [];
    let arrived: LogRecord[] = [];
    let isRead = false;
    let frame = 0;
    const draw = (state: LiveLines['state'], why = ''): void => {
      frame = 0;
      lines = [...lines, ...arrived].slice(-MOST_KEPT);
      arrived = [];
      if (!screen.signal.aborted) setShown({ lines, state, why });
    };
    const follow = (): (() => void) => {
      const fromSeq = (arrived.at(-1) ?? lines.at(-1))?.seq_num;
      return followLines(
        {
          workspaceId,
          topic: `logs:${queryOf(about).slice(1)}`,
          fromSeq: fromSeq === undefined ? undefined : fromSeq + 1,
        },
        (told) => {
          if (told.kind === 'failed') draw('lost', told.problem.message);
          if (told.kind !== 'lines') return;
          arrived.push(...(told.lines as readonly LogRecord[]));
          if (frame === 0) frame = requestAnimationFrame(() => draw('live'));
        },
      );
    };
    /** Reads the newest lines, then follows from the last of them. */
    const begin = (): (() => void) => {
      if (isRead) return follow();
      const reading = new AbortController();
      let end: (() => void) | undefined;
      let timer: ReturnType<typeof setTimeout> | undefined;
      const read = async (): Promise<void> => {
        try {
          const path = `/logs/${workspaceId}${queryOf({ ...about, limit: FIRST_PAGE })}`;
          const page = await rest<Static<typeof LogPage>>(path, { signal: reading.signal });
          if (reading.signal.aborted) return;
          isRead = true;
          arrived.push(...page.logs);
          end = follow();
        } catch (error) {
          if (reading.signal.aborted) return;
          draw('lost', error instanceof Error ? error.message : String(error));
          timer = setTimeout(() => void read(), READ_AGAIN_MS);
        }
      };
      void read();
      return () => {
        reading.abort();
        clearTimeout(timer);
        end?.();
      };
    };
    const end = whileVisible(begin);
    return () => {
      screen.abort();
      cancelAnimationFrame(frame);
      end();
    };
  }, [key]);
  return shown;
}
