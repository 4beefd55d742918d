// Log lines as they come: a page of the newest, then a stream from there on. A stream that breaks is dialled again from
// the last line. Lines wait for a frame of the screen, so that a thousand a second are drawn sixty times at most.
// Invariant: a bounded number of lines is kept.
import { createParser } from 'eventsource-parser';
import { useEffect, useState } from 'preact/hooks';
import type { LogPage, LogRecord } from '#shared/api/rest/logs.ts';
import type { Static } from 'typebox';
import { queryOf, rest, send } from '../api/client.ts';

/** Lines that a screen keeps. */
export const MOST_KEPT = 5_000;
const FIRST_PAGE = 200;
const DIAL_AGAIN_MS = 2_000;

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
    let frame = 0;
    let isReading = false;
    const draw = (state: LiveLines['state'], why = ''): void => {
      frame = 0;
      lines = [...lines, ...arrived].slice(-MOST_KEPT);
      arrived = [];
      setShown({ lines, state, why });
    };
    const take = (line: LogRecord): void => {
      arrived.push(line);
      if (frame === 0) frame = requestAnimationFrame(() => draw('live'));
    };
    const follow = async (signal: AbortSignal): Promise<void> => {
      const last = (arrived.at(-1) ?? lines.at(-1))?.seq_num;
      if (last === undefined) {
        const page = await rest<Static<typeof LogPage>>(
          `/logs/${workspaceId}${queryOf({ ...about, limit: FIRST_PAGE })}`,
          { signal },
        );
        arrived.push(...page.logs);
      }
      const from = arrived.at(-1)?.seq_num ?? last;
      const answer = await send(`/api/v1/logs/${workspaceId}/stream${queryOf(about)}`, {
        signal,
        headers: from === undefined ? {} : { 'last-event-id': String(from) },
      });
      draw('live');
      const parser = createParser({
        onEvent: ({ event, data }) => {
          if (event === 'log') take(JSON.parse(data) as LogRecord);
        },
      });
      const text = new TextDecoder();
      const reader = answer.body?.getReader();
      for (;;) {
        // Safari has no other way to read a body in pieces.
        const piece = await reader?.read();
        if (piece?.value === undefined) return;
        parser.feed(text.decode(piece.value, { stream: true }));
      }
    };
    const run = async (): Promise<void> => {
      if (isReading || document.visibilityState !== 'visible') return;
      isReading = true;
      const tab = new AbortController();
      const hide = (): void => tab.abort();
      document.addEventListener('visibilitychange', hide);
      let why = 'the stream ended';
      try {
        await follow(AbortSignal.any([screen.signal, tab.signal]));
      } catch (error) {
        why = error instanceof Error ? error.message : String(error);
      } finally {
        document.removeEventListener('visibilitychange', hide);
        isReading = false;
      }
      if (screen.signal.aborted) return;
      draw('lost', tab.signal.aborted ? '' : why);
      setTimeout(() => void run(), DIAL_AGAIN_MS);
    };
    const onVisible = (): void => void run();
    document.addEventListener('visibilitychange', onVisible);
    void run();
    return () => {
      screen.abort();
      cancelAnimationFrame(frame);
      document.removeEventListener('visibilitychange', onVisible);
    };
  }, [key]);
  return shown;
}
