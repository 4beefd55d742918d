// Original file: shared/protocol/agent.proto

import type { Welcome as _longshore_agent_v1_Welcome, Welcome__Output as _longshore_agent_v1_Welcome__Output } from '../../../longshore/agent/v1/Welcome.ts';
import type { Desired as _longshore_agent_v1_Desired, Desired__Output as _longshore_agent_v1_Desired__Output } from '../../../longshore/agent/v1/Desired.ts';
import type { Proceed as _longshore_agent_v1_Proceed, Proceed__Output as _longshore_agent_v1_Proceed__Output } from '../../../longshore/agent/v1/Proceed.ts';
import type { Ping as _longshore_agent_v1_Ping, Ping__Output as _longshore_agent_v1_Ping__Output } from '../../../longshore/agent/v1/Ping.ts';
import type { Superseded as _longshore_agent_v1_Superseded, Superseded__Output as _longshore_agent_v1_Superseded__Output } from '../../../longshore/agent/v1/Superseded.ts';
import type { Revoked as _longshore_agent_v1_Revoked, Revoked__Output as _longshore_agent_v1_Revoked__Output } from '../../../longshore/agent/v1/Revoked.ts';
import type { PrepareImage as _longshore_agent_v1_PrepareImage, PrepareImage__Output as _longshore_agent_v1_PrepareImage__Output } from '../../../longshore/agent/v1/PrepareImage.ts';
import type { HeartbeatAck as _longshore_agent_v1_HeartbeatAck, HeartbeatAck__Output as _longshore_agent_v1_HeartbeatAck__Output } from '../../../longshore/agent/v1/HeartbeatAck.ts';
import type { FetchMetrics as _longshore_agent_v1_FetchMetrics, FetchMetrics__Output as _longshore_agent_v1_FetchMetrics__Output } from '../../../longshore/agent/v1/FetchMetrics.ts';
import type { ServeVolume as _longshore_agent_v1_ServeVolume, ServeVolume__Output as _longshore_agent_v1_ServeVolume__Output } from '../../../longshore/agent/v1/ServeVolume.ts';
import type { BuildImage as _longshore_agent_v1_BuildImage, BuildImage__Output as _longshore_agent_v1_BuildImage__Output } from '../../../longshore/agent/v1/BuildImage.ts';
import type { RemoveImages as _longshore_agent_v1_RemoveImages, RemoveImages__Output as _longshore_agent_v1_RemoveImages__Output } from '../../../longshore/agent/v1/RemoveImages.ts';
import type { RemoveCaches as _longshore_agent_v1_RemoveCaches, RemoveCaches__Output as _longshore_agent_v1_RemoveCaches__Output } from '../../../longshore/agent/v1/RemoveCaches.ts';
import type { ServeContainer as _longshore_agent_v1_ServeContainer, ServeContainer__Output as _longshore_agent_v1_ServeContainer__Output } from '../../../longshore/agent/v1/ServeContainer.ts';
import type { ChangeContainer as _longshore_agent_v1_ChangeContainer, ChangeContainer__Output as _longshore_agent_v1_ChangeContainer__Output } from '../../../longshore/agent/v1/ChangeContainer.ts';
import type { Later as _longshore_agent_v1_Later, Later__Output as _longshore_agent_v1_Later__Output } from '../../../longshore/agent/v1/Later.ts';

export interface ControlToAgent {
  'welcome'?: (_longshore_agent_v1_Welcome | null);
  'desired'?: (_longshore_agent_v1_Desired | null);
  'proceed'?: (_longshore_agent_v1_Proceed | null);
  'ping'?: (_longshore_agent_v1_Ping | null);
  'superseded'?: (_longshore_agent_v1_Superseded | null);
  'revoked'?: (_longshore_agent_v1_Revoked | null);
  'prepareImage'?: (_longshore_agent_v1_PrepareImage | null);
  'heartbeatAck'?: (_longshore_agent_v1_HeartbeatAck | null);
  'fetchMetrics'?: (_longshore_agent_v1_FetchMetrics | null);
  'serveVolume'?: (_longshore_agent_v1_ServeVolume | null);
  'buildImage'?: (_longshore_agent_v1_BuildImage | null);
  'removeImages'?: (_longshore_agent_v1_RemoveImages | null);
  'removeCaches'?: (_longshore_agent_v1_RemoveCaches | null);
  'serveContainer'?: (_longshore_agent_v1_ServeContainer | null);
  'changeContainer'?: (_longshore_agent_v1_ChangeContainer | null);
  'later'?: (_longshore_agent_v1_Later | null);
  'message'?: "welcome"|"desired"|"proceed"|"ping"|"superseded"|"revoked"|"prepareImage"|"heartbeatAck"|"fetchMetrics"|"serveVolume"|"buildImage"|"removeImages"|"removeCaches"|"serveContainer"|"changeContainer"|"later";
}

export interface ControlToAgent__Output {
  'welcome'?: (_longshore_agent_v1_Welcome__Output | null);
  'desired'?: (_longshore_agent_v1_Desired__Output | null);
  'proceed'?: (_longshore_agent_v1_Proceed__Output | null);
  'ping'?: (_longshore_agent_v1_Ping__Output | null);
  'superseded'?: (_longshore_agent_v1_Superseded__Output | null);
  'revoked'?: (_longshore_agent_v1_Revoked__Output | null);
  'prepareImage'?: (_longshore_agent_v1_PrepareImage__Output | null);
  'heartbeatAck'?: (_longshore_agent_v1_HeartbeatAck__Output | null);
  'fetchMetrics'?: (_longshore_agent_v1_FetchMetrics__Output | null);
  'serveVolume'?: (_longshore_agent_v1_ServeVolume__Output | null);
  'buildImage'?: (_longshore_agent_v1_BuildImage__Output | null);
  'removeImages'?: (_longshore_agent_v1_RemoveImages__Output | null);
  'removeCaches'?: (_longshore_agent_v1_RemoveCaches__Output | null);
  'serveContainer'?: (_longshore_agent_v1_ServeContainer__Output | null);
  'changeContainer'?: (_longshore_agent_v1_ChangeContainer__Output | null);
  'later'?: (_longshore_agent_v1_Later__Output | null);
  'message'?: "welcome"|"desired"|"proceed"|"ping"|"superseded"|"revoked"|"prepareImage"|"heartbeatAck"|"fetchMetrics"|"serveVolume"|"buildImage"|"removeImages"|"removeCaches"|"serveContainer"|"changeContainer"|"later";
}
