// Durable disks are not built yet, so their lists are empty. The calls that make or delete one are in refused.ts.
import type { Service } from './service.ts';

export const DISK: Service = {
  pack: 'disk',
  name: 'DiskService',
  messages: {
    ListDiskSnapshotsRequest: 'disk_name 1',
    ListDiskSnapshotsResponse: 'ok 1 bool; err_msg 2',
    ListDisksRequest: '',
    ListDisksResponse: 'ok 1 bool; err_msg 2',
  },
  calls: {
    ListDisks: { operation: 'ListVolumes', always: { ok: true } },
    ListDiskSnapshots: { operation: 'ListVolumes', always: { ok: true } },
  },
};
