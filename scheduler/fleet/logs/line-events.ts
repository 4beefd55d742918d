// Log lines as events `container.log`, for streams of events that ask for them. They come from the hub of live lines,
// so each line comes once and in order, at every replica, also to a reader who is slow for a while.
import type { AppId, ContainerId, StubId, TaskId } from '#shared/domain/ids.ts';
import { passingFrame } from '../../workspaces/events/passing.ts';
import type { LiveLine } from './live-logs.ts';

const frames = new WeakMap<LiveLine, Buffer>();

/** The line as a stream of events sends it; made once for all of its readers. */
export function lineFrame(line: LiveLine): Buffer {
  const known = frames.get(line);
  if (known !== undefined) return known;
  const frame = frameOf(line);
  frames.set(line, frame);
  return frame;
}

function frameOf(line: LiveLine): Buffer {
  const { workspaceId, seq, atMs, stubId, stubType, appId, taskId, containerId, deploymentId, machineId } = line;
  return passingFrame({
    // The same at every replica, and never twice: the line's time and its number.
    id: hex(Math.floor(atMs / 1000), 8) + hex(seq, 16),
    workspaceId,
    type: 'container.log',
    atMs,
    stubId: stubId as StubId,
    containerId: containerId as ContainerId,
    ...(stubType === undefined ? {} : { stubType }),
    ...(appId === undefined ? {} : { appId: appId as AppId }),
    ...(taskId === null ? {} : { taskId: taskId as TaskId }),
    ...(machineId === undefined ? {} : { machineId }),
    data: {
      container_id: containerId,
      stub_id: stubId,
      deployment_id: deploymentId ?? '',
      task_id: taskId ?? '',
      workspace_id: workspaceId,
      worker_id: machineId ?? '',
      machine_id: machineId ?? '',
      stream: line.stream,
      line: line.line,
      seq_num: seq,
    },
  });
}

const hex = (value: number, digits: number): string => value.toString(16).padStart(digits, '0').slice(-digits);
