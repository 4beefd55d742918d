// Output of people's containers: appended as agents send it, read by the surfaces.
import type { WorkspaceId } from '#shared/domain/ids.ts';

export interface LogLine {
  readonly seq: number;
  readonly atMs: number;
  readonly stream: 'stdout' | 'stderr';
  readonly line: string;
  readonly containerId: string;
  readonly stubId: string;
  readonly deploymentId: string | null;
  readonly taskId: string | null;
}

export interface LogFilter {
  readonly containerId?: string;
  readonly taskId?: string;
  readonly stubId?: string;
  readonly deploymentId?: string;
  readonly appId?: string;
  readonly machineId?: string;
  readonly query?: string;
  readonly fromMs?: number;
  /** Exclusive. */
  readonly toMs?: number;
  /** Newest lines are page 0; inside a page oldest first. */
  readonly limit: number;
  readonly page: number;
  /** Only lines after this sequence number (for following). */
  readonly afterSeq?: number;
  /** Only lines before this sequence number (for going on where a read stopped). */
  readonly beforeSeq?: number;
}

export interface LogPageRead {
  readonly lines: readonly LogLine[];
  /** As many lines as were asked for. */
  readonly isFull: boolean;
  /** Where the next read goes on; undefined: everything was looked at. */
  readonly nextSeq: number | undefined;
}

export interface LogReads {
  read(workspaceId: WorkspaceId, filter: LogFilter): Promise<LogPageRead>;
}
