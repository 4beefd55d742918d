// Events of workspaces: who writes them, and who is told.
import { EventWriter } from '../workspaces/events/writer.ts';

export interface Events {
  readonly writer: EventWriter;
}

export function openEvents(): Events {
  return { writer: new EventWriter() };
}
