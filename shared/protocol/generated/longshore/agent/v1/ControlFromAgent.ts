// Original file: shared/protocol/agent.proto

import type { Hello as _longshore_agent_v1_Hello, Hello__Output as _longshore_agent_v1_Hello__Output } from '../../../longshore/agent/v1/Hello.ts';
import type { Ack as _longshore_agent_v1_Ack, Ack__Output as _longshore_agent_v1_Ack__Output } from '../../../longshore/agent/v1/Ack.ts';
import type { Refuse as _longshore_agent_v1_Refuse, Refuse__Output as _longshore_agent_v1_Refuse__Output } from '../../../longshore/agent/v1/Refuse.ts';
import type { StatusReport as _longshore_agent_v1_StatusReport, StatusReport__Output as _longshore_agent_v1_StatusReport__Output } from '../../../longshore/agent/v1/StatusReport.ts';
import type { Heartbeat as _longshore_agent_v1_Heartbeat, Heartbeat__Output as _longshore_agent_v1_Heartbeat__Output } from '../../../longshore/agent/v1/Heartbeat.ts';
import type { Goodbye as _longshore_agent_v1_Goodbye, Goodbye__Output as _longshore_agent_v1_Goodbye__Output } from '../../../longshore/agent/v1/Goodbye.ts';
import type { Pong as _longshore_agent_v1_Pong, Pong__Output as _longshore_agent_v1_Pong__Output } from '../../../longshore/agent/v1/Pong.ts';
import type { DeviceReport as _longshore_agent_v1_DeviceReport, DeviceReport__Output as _longshore_agent_v1_DeviceReport__Output } from '../../../longshore/agent/v1/DeviceReport.ts';
import type { ImagePrepared as _longshore_agent_v1_ImagePrepared, ImagePrepared__Output as _longshore_agent_v1_ImagePrepared__Output } from '../../../longshore/agent/v1/ImagePrepared.ts';
import type { HostDrain as _longshore_agent_v1_HostDrain, HostDrain__Output as _longshore_agent_v1_HostDrain__Output } from '../../../longshore/agent/v1/HostDrain.ts';
import type { Samples as _longshore_agent_v1_Samples, Samples__Output as _longshore_agent_v1_Samples__Output } from '../../../longshore/agent/v1/Samples.ts';
import type { VolumeUse as _longshore_agent_v1_VolumeUse, VolumeUse__Output as _longshore_agent_v1_VolumeUse__Output } from '../../../longshore/agent/v1/VolumeUse.ts';
import type { CacheUse as _longshore_agent_v1_CacheUse, CacheUse__Output as _longshore_agent_v1_CacheUse__Output } from '../../../longshore/agent/v1/CacheUse.ts';
import type { ContainerChanged as _longshore_agent_v1_ContainerChanged, ContainerChanged__Output as _longshore_agent_v1_ContainerChanged__Output } from '../../../longshore/agent/v1/ContainerChanged.ts';
import type { VolumeDrivers as _longshore_agent_v1_VolumeDrivers, VolumeDrivers__Output as _longshore_agent_v1_VolumeDrivers__Output } from '../../../longshore/agent/v1/VolumeDrivers.ts';
import type { HostWarnings as _longshore_agent_v1_HostWarnings, HostWarnings__Output as _longshore_agent_v1_HostWarnings__Output } from '../../../longshore/agent/v1/HostWarnings.ts';
import type { BasePythons as _longshore_agent_v1_BasePythons, BasePythons__Output as _longshore_agent_v1_BasePythons__Output } from '../../../longshore/agent/v1/BasePythons.ts';

export interface ControlFromAgent {
  'hello'?: (_longshore_agent_v1_Hello | null);
  'ack'?: (_longshore_agent_v1_Ack | null);
  'refuse'?: (_longshore_agent_v1_Refuse | null);
  'status'?: (_longshore_agent_v1_StatusReport | null);
  'heartbeat'?: (_longshore_agent_v1_Heartbeat | null);
  'goodbye'?: (_longshore_agent_v1_Goodbye | null);
  'pong'?: (_longshore_agent_v1_Pong | null);
  'devices'?: (_longshore_agent_v1_DeviceReport | null);
  'imagePrepared'?: (_longshore_agent_v1_ImagePrepared | null);
  'hostDrain'?: (_longshore_agent_v1_HostDrain | null);
  'samples'?: (_longshore_agent_v1_Samples | null);
  'volumeUse'?: (_longshore_agent_v1_VolumeUse | null);
  'cacheUse'?: (_longshore_agent_v1_CacheUse | null);
  'containerChanged'?: (_longshore_agent_v1_ContainerChanged | null);
  'volumeDrivers'?: (_longshore_agent_v1_VolumeDrivers | null);
  'hostWarnings'?: (_longshore_agent_v1_HostWarnings | null);
  'basePythons'?: (_longshore_agent_v1_BasePythons | null);
  'message'?: "hello"|"ack"|"refuse"|"status"|"heartbeat"|"goodbye"|"pong"|"devices"|"imagePrepared"|"hostDrain"|"samples"|"volumeUse"|"cacheUse"|"containerChanged"|"hostWarnings"|"basePythons"|"volumeDrivers";
}

export interface ControlFromAgent__Output {
  'hello'?: (_longshore_agent_v1_Hello__Output | null);
  'ack'?: (_longshore_agent_v1_Ack__Output | null);
  'refuse'?: (_longshore_agent_v1_Refuse__Output | null);
  'status'?: (_longshore_agent_v1_StatusReport__Output | null);
  'heartbeat'?: (_longshore_agent_v1_Heartbeat__Output | null);
  'goodbye'?: (_longshore_agent_v1_Goodbye__Output | null);
  'pong'?: (_longshore_agent_v1_Pong__Output | null);
  'devices'?: (_longshore_agent_v1_DeviceReport__Output | null);
  'imagePrepared'?: (_longshore_agent_v1_ImagePrepared__Output | null);
  'hostDrain'?: (_longshore_agent_v1_HostDrain__Output | null);
  'samples'?: (_longshore_agent_v1_Samples__Output | null);
  'volumeUse'?: (_longshore_agent_v1_VolumeUse__Output | null);
  'cacheUse'?: (_longshore_agent_v1_CacheUse__Output | null);
  'containerChanged'?: (_longshore_agent_v1_ContainerChanged__Output | null);
  'volumeDrivers'?: (_longshore_agent_v1_VolumeDrivers__Output | null);
  'hostWarnings'?: (_longshore_agent_v1_HostWarnings__Output | null);
  'basePythons'?: (_longshore_agent_v1_BasePythons__Output | null);
  'message'?: "hello"|"ack"|"refuse"|"status"|"heartbeat"|"goodbye"|"pong"|"devices"|"imagePrepared"|"hostDrain"|"samples"|"volumeUse"|"cacheUse"|"containerChanged"|"hostWarnings"|"basePythons"|"volumeDrivers";
}
