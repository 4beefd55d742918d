// Task queues.
import type { Service } from './service.ts';

export const TASK_QUEUE: Service = {
  pack: 'taskqueue',
  name: 'TaskQueueService',
  messages: {
    TaskQueueLengthRequest: 'stub_id 1',
    TaskQueueLengthResponse: 'ok 1 bool; length 2 int64',
    TaskQueuePutRequest: 'stub_id 1; payload 2 bytes',
    TaskQueuePutResponse: 'ok 1 bool; task_id 2',
  },
  calls: {
    TaskQueuePut: {},
    TaskQueueLength: {},
  },
};
