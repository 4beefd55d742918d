// Volumes.
import type { Service } from './service.ts';

export const VOLUME: Service = {
  pack: 'volume',
  name: 'VolumeService',
  messages: {
    GetOrCreateVolumeRequest: 'name 1',
    GetOrCreateVolumeResponse: 'ok 1 bool; err_msg 2; volume 3 VolumeInstance',
    VolumeInstance: `
      id 1; name 2; size 3 uint64; created_at 4 time; updated_at 5 time; workspace_id 6; workspace_name 7`,
  },
  calls: {
    GetOrCreateVolume: { tell: (answer) => ({ ...answer, errMsg: answer['error'] }) },
  },
};
