// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface VolumeUse {
  'bytes'?: ({[key: string]: number | string | Long});
}

export interface VolumeUse__Output {
  'bytes': ({[key: string]: number});
}
