// Functions. A client whose stream broke off names its task and the bytes that it has in metadata.
import type { Service } from './service.ts';

const TASK = 'x-beta9-task-id';
const OFFSET = 'x-beta9-log-offset';

export const FUNCTION: Service = {
  pack: 'function',
  name: 'FunctionService',
  messages: {
    FunctionScheduleRequest: 'stub_id 1; when 2; deployment_id 3',
    FunctionScheduleResponse: 'ok 1 bool; err_msg 2; scheduled_job_id 3',
    FunctionInvokeRequest: 'stub_id 1; args 2 bytes; headless 3 bool',
    FunctionInvokeResponse: 'task_id 1; output 2; done 3 bool; exit_code 4 int32; result 5 bytes',
  },
  calls: {
    FunctionSchedule: {},
    FunctionInvoke: {
      comesBack: true,
      read: (message, headers) => ({
        ...message,
        task_id: headers[TASK] ?? '',
        log_offset: (headers[OFFSET] ?? '') === '' ? '0' : headers[OFFSET],
      }),
    },
  },
};
