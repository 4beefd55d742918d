// Task queues.
import type { Service } from './service.ts';

export const TASK_QUEUE: Service = {
  pack: 'taskqueue',
  name: 'TaskQueueService',
  messages: {
    StartTaskQueueServeRequest: 'stub_id 1; timeout 2 int32',
    StartTaskQueueServeResponse: 'ok 1 bool; container_id 2; error_msg 3',
    TaskQueueLengthRequest: 'stub_id 1',
    TaskQueueLengthResponse: 'ok 1 bool; length 2 int64',
    TaskQueuePutRequest: 'stub_id 1; payload 2 bytes',
    TaskQueuePutResponse: 'ok 1 bool; task_id 2',
  },
  calls: {
    StartTaskQueueServe: { operation: 'StartClientServe' },
    TaskQueuePut: {},
    TaskQueueLength: {},
  },
};
