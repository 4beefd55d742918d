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
  /** End of the time range, exclusive. */
  readonly toMs?: number;
  /** Lines of a page. The newest lines are page 0; inside a page the oldest come first. */
  readonly limit: number;
  readonly page: number;
  /** Only lines after this sequence number (for following). */
  readonly afterSeq?: number;
  /** Only lines before this sequence number (for going on where a read stopped). */
  readonly beforeSeq?: number;
}

export interface LogPageRead {
  readonly lines: readonly LogLine[];
  /** Whether the read has as many lines as were requested; it may also have been cut for their length. */
  readonly isFull: boolean;
  /** Sequence number where the next read continues; undefined: all lines were looked at. */
  readonly nextSeq: number | undefined;
  /** Sequence number of the last matching line that was looked at, in the direction of reading; undefined: none was. */
  readonly lastSeq: number | undefined;
}

export interface LogReads {
  read(workspaceId: WorkspaceId, filter: LogFilter): Promise<LogPageRead>;
}
