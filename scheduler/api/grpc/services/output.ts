// Files that tasks saved.
import type { Service } from './service.ts';

export const OUTPUT: Service = {
  pack: 'output',
  name: 'OutputService',
  messages: {
    OutputPublicUrlRequest: 'id 1; task_id 2; filename 3; expires 4 uint32',
    OutputPublicUrlResponse: 'ok 1 bool; err_msg 2; public_url 3',
    OutputSaveRequest: 'task_id 1; filename 2; content 3 bytes',
    OutputSaveResponse: 'ok 1 bool; err_msg 2; id 3',
    OutputStat: 'mode 1; size 2 int64; atime 3 time; mtime 4 time',
    OutputStatRequest: 'id 1; task_id 2; filename 3',
    OutputStatResponse: 'ok 1 bool; err_msg 2; stat 3 OutputStat',
  },
  calls: {
    OutputSaveStream: { messages: 'OutputSave', isLarge: true },
    OutputStat: {},
    OutputPublicURL: { messages: 'OutputPublicUrl' },
  },
};
