import type * as grpc from '@grpc/grpc-js';
import type { MessageTypeDefinition } from '@grpc/proto-loader';

import type { Ack as _longshore_agent_v1_Ack, Ack__Output as _longshore_agent_v1_Ack__Output } from './longshore/agent/v1/Ack.ts';
import type { AckResult as _longshore_agent_v1_AckResult, AckResult__Output as _longshore_agent_v1_AckResult__Output } from './longshore/agent/v1/AckResult.ts';
import type { AgentLinkClient as _longshore_agent_v1_AgentLinkClient, AgentLinkDefinition as _longshore_agent_v1_AgentLinkDefinition } from './longshore/agent/v1/AgentLink.ts';
import type { Assignment as _longshore_agent_v1_Assignment, Assignment__Output as _longshore_agent_v1_Assignment__Output } from './longshore/agent/v1/Assignment.ts';
import type { AttemptsKnown as _longshore_agent_v1_AttemptsKnown, AttemptsKnown__Output as _longshore_agent_v1_AttemptsKnown__Output } from './longshore/agent/v1/AttemptsKnown.ts';
import type { BasePythons as _longshore_agent_v1_BasePythons, BasePythons__Output as _longshore_agent_v1_BasePythons__Output } from './longshore/agent/v1/BasePythons.ts';
import type { BodyChunk as _longshore_agent_v1_BodyChunk, BodyChunk__Output as _longshore_agent_v1_BodyChunk__Output } from './longshore/agent/v1/BodyChunk.ts';
import type { BucketKeys as _longshore_agent_v1_BucketKeys, BucketKeys__Output as _longshore_agent_v1_BucketKeys__Output } from './longshore/agent/v1/BucketKeys.ts';
import type { BucketMount as _longshore_agent_v1_BucketMount, BucketMount__Output as _longshore_agent_v1_BucketMount__Output } from './longshore/agent/v1/BucketMount.ts';
import type { BuildImage as _longshore_agent_v1_BuildImage, BuildImage__Output as _longshore_agent_v1_BuildImage__Output } from './longshore/agent/v1/BuildImage.ts';
import type { BuildStep as _longshore_agent_v1_BuildStep, BuildStep__Output as _longshore_agent_v1_BuildStep__Output } from './longshore/agent/v1/BuildStep.ts';
import type { CacheUse as _longshore_agent_v1_CacheUse, CacheUse__Output as _longshore_agent_v1_CacheUse__Output } from './longshore/agent/v1/CacheUse.ts';
import type { CachedVolume as _longshore_agent_v1_CachedVolume, CachedVolume__Output as _longshore_agent_v1_CachedVolume__Output } from './longshore/agent/v1/CachedVolume.ts';
import type { CancelTask as _longshore_agent_v1_CancelTask, CancelTask__Output as _longshore_agent_v1_CancelTask__Output } from './longshore/agent/v1/CancelTask.ts';
import type { ChallengeRequest as _longshore_agent_v1_ChallengeRequest, ChallengeRequest__Output as _longshore_agent_v1_ChallengeRequest__Output } from './longshore/agent/v1/ChallengeRequest.ts';
import type { ChallengeResponse as _longshore_agent_v1_ChallengeResponse, ChallengeResponse__Output as _longshore_agent_v1_ChallengeResponse__Output } from './longshore/agent/v1/ChallengeResponse.ts';
import type { ChangeContainer as _longshore_agent_v1_ChangeContainer, ChangeContainer__Output as _longshore_agent_v1_ChangeContainer__Output } from './longshore/agent/v1/ChangeContainer.ts';
import type { ChangeGpu as _longshore_agent_v1_ChangeGpu, ChangeGpu__Output as _longshore_agent_v1_ChangeGpu__Output } from './longshore/agent/v1/ChangeGpu.ts';
import type { CodeArchive as _longshore_agent_v1_CodeArchive, CodeArchive__Output as _longshore_agent_v1_CodeArchive__Output } from './longshore/agent/v1/CodeArchive.ts';
import type { Conditions as _longshore_agent_v1_Conditions, Conditions__Output as _longshore_agent_v1_Conditions__Output } from './longshore/agent/v1/Conditions.ts';
import type { ContainerChanged as _longshore_agent_v1_ContainerChanged, ContainerChanged__Output as _longshore_agent_v1_ContainerChanged__Output } from './longshore/agent/v1/ContainerChanged.ts';
import type { ContainerDeltas as _longshore_agent_v1_ContainerDeltas, ContainerDeltas__Output as _longshore_agent_v1_ContainerDeltas__Output } from './longshore/agent/v1/ContainerDeltas.ts';
import type { ContainerSample as _longshore_agent_v1_ContainerSample, ContainerSample__Output as _longshore_agent_v1_ContainerSample__Output } from './longshore/agent/v1/ContainerSample.ts';
import type { ContainerSpec as _longshore_agent_v1_ContainerSpec, ContainerSpec__Output as _longshore_agent_v1_ContainerSpec__Output } from './longshore/agent/v1/ContainerSpec.ts';
import type { ControlFromAgent as _longshore_agent_v1_ControlFromAgent, ControlFromAgent__Output as _longshore_agent_v1_ControlFromAgent__Output } from './longshore/agent/v1/ControlFromAgent.ts';
import type { ControlToAgent as _longshore_agent_v1_ControlToAgent, ControlToAgent__Output as _longshore_agent_v1_ControlToAgent__Output } from './longshore/agent/v1/ControlToAgent.ts';
import type { Delivered as _longshore_agent_v1_Delivered, Delivered__Output as _longshore_agent_v1_Delivered__Output } from './longshore/agent/v1/Delivered.ts';
import type { Desired as _longshore_agent_v1_Desired, Desired__Output as _longshore_agent_v1_Desired__Output } from './longshore/agent/v1/Desired.ts';
import type { DeviceReport as _longshore_agent_v1_DeviceReport, DeviceReport__Output as _longshore_agent_v1_DeviceReport__Output } from './longshore/agent/v1/DeviceReport.ts';
import type { DeviceSample as _longshore_agent_v1_DeviceSample, DeviceSample__Output as _longshore_agent_v1_DeviceSample__Output } from './longshore/agent/v1/DeviceSample.ts';
import type { FetchCodeRequest as _longshore_agent_v1_FetchCodeRequest, FetchCodeRequest__Output as _longshore_agent_v1_FetchCodeRequest__Output } from './longshore/agent/v1/FetchCodeRequest.ts';
import type { FetchMetrics as _longshore_agent_v1_FetchMetrics, FetchMetrics__Output as _longshore_agent_v1_FetchMetrics__Output } from './longshore/agent/v1/FetchMetrics.ts';
import type { GatewayRequest as _longshore_agent_v1_GatewayRequest, GatewayRequest__Output as _longshore_agent_v1_GatewayRequest__Output } from './longshore/agent/v1/GatewayRequest.ts';
import type { GatewayRequestHead as _longshore_agent_v1_GatewayRequestHead, GatewayRequestHead__Output as _longshore_agent_v1_GatewayRequestHead__Output } from './longshore/agent/v1/GatewayRequestHead.ts';
import type { GatewayResponse as _longshore_agent_v1_GatewayResponse, GatewayResponse__Output as _longshore_agent_v1_GatewayResponse__Output } from './longshore/agent/v1/GatewayResponse.ts';
import type { GatewayResponseHead as _longshore_agent_v1_GatewayResponseHead, GatewayResponseHead__Output as _longshore_agent_v1_GatewayResponseHead__Output } from './longshore/agent/v1/GatewayResponseHead.ts';
import type { Goodbye as _longshore_agent_v1_Goodbye, Goodbye__Output as _longshore_agent_v1_Goodbye__Output } from './longshore/agent/v1/Goodbye.ts';
import type { Gpu as _longshore_agent_v1_Gpu, Gpu__Output as _longshore_agent_v1_Gpu__Output } from './longshore/agent/v1/Gpu.ts';
import type { GpuUse as _longshore_agent_v1_GpuUse, GpuUse__Output as _longshore_agent_v1_GpuUse__Output } from './longshore/agent/v1/GpuUse.ts';
import type { Heartbeat as _longshore_agent_v1_Heartbeat, Heartbeat__Output as _longshore_agent_v1_Heartbeat__Output } from './longshore/agent/v1/Heartbeat.ts';
import type { HeartbeatAck as _longshore_agent_v1_HeartbeatAck, HeartbeatAck__Output as _longshore_agent_v1_HeartbeatAck__Output } from './longshore/agent/v1/HeartbeatAck.ts';
import type { Hello as _longshore_agent_v1_Hello, Hello__Output as _longshore_agent_v1_Hello__Output } from './longshore/agent/v1/Hello.ts';
import type { HostDisk as _longshore_agent_v1_HostDisk, HostDisk__Output as _longshore_agent_v1_HostDisk__Output } from './longshore/agent/v1/HostDisk.ts';
import type { HostDrain as _longshore_agent_v1_HostDrain, HostDrain__Output as _longshore_agent_v1_HostDrain__Output } from './longshore/agent/v1/HostDrain.ts';
import type { HostFacts as _longshore_agent_v1_HostFacts, HostFacts__Output as _longshore_agent_v1_HostFacts__Output } from './longshore/agent/v1/HostFacts.ts';
import type { HostFileSystem as _longshore_agent_v1_HostFileSystem, HostFileSystem__Output as _longshore_agent_v1_HostFileSystem__Output } from './longshore/agent/v1/HostFileSystem.ts';
import type { HostNic as _longshore_agent_v1_HostNic, HostNic__Output as _longshore_agent_v1_HostNic__Output } from './longshore/agent/v1/HostNic.ts';
import type { HostWarning as _longshore_agent_v1_HostWarning, HostWarning__Output as _longshore_agent_v1_HostWarning__Output } from './longshore/agent/v1/HostWarning.ts';
import type { HostWarnings as _longshore_agent_v1_HostWarnings, HostWarnings__Output as _longshore_agent_v1_HostWarnings__Output } from './longshore/agent/v1/HostWarnings.ts';
import type { HttpHeader as _longshore_agent_v1_HttpHeader, HttpHeader__Output as _longshore_agent_v1_HttpHeader__Output } from './longshore/agent/v1/HttpHeader.ts';
import type { ImagePrepared as _longshore_agent_v1_ImagePrepared, ImagePrepared__Output as _longshore_agent_v1_ImagePrepared__Output } from './longshore/agent/v1/ImagePrepared.ts';
import type { Inventory as _longshore_agent_v1_Inventory, Inventory__Output as _longshore_agent_v1_Inventory__Output } from './longshore/agent/v1/Inventory.ts';
import type { JoinRequest as _longshore_agent_v1_JoinRequest, JoinRequest__Output as _longshore_agent_v1_JoinRequest__Output } from './longshore/agent/v1/JoinRequest.ts';
import type { JoinResponse as _longshore_agent_v1_JoinResponse, JoinResponse__Output as _longshore_agent_v1_JoinResponse__Output } from './longshore/agent/v1/JoinResponse.ts';
import type { Later as _longshore_agent_v1_Later, Later__Output as _longshore_agent_v1_Later__Output } from './longshore/agent/v1/Later.ts';
import type { LiveAttempt as _longshore_agent_v1_LiveAttempt, LiveAttempt__Output as _longshore_agent_v1_LiveAttempt__Output } from './longshore/agent/v1/LiveAttempt.ts';
import type { LogAck as _longshore_agent_v1_LogAck, LogAck__Output as _longshore_agent_v1_LogAck__Output } from './longshore/agent/v1/LogAck.ts';
import type { LogBatch as _longshore_agent_v1_LogBatch, LogBatch__Output as _longshore_agent_v1_LogBatch__Output } from './longshore/agent/v1/LogBatch.ts';
import type { LogRecord as _longshore_agent_v1_LogRecord, LogRecord__Output as _longshore_agent_v1_LogRecord__Output } from './longshore/agent/v1/LogRecord.ts';
import type { MachineSample as _longshore_agent_v1_MachineSample, MachineSample__Output as _longshore_agent_v1_MachineSample__Output } from './longshore/agent/v1/MachineSample.ts';
import type { MetricsPage as _longshore_agent_v1_MetricsPage, MetricsPage__Output as _longshore_agent_v1_MetricsPage__Output } from './longshore/agent/v1/MetricsPage.ts';
import type { NetworkRules as _longshore_agent_v1_NetworkRules, NetworkRules__Output as _longshore_agent_v1_NetworkRules__Output } from './longshore/agent/v1/NetworkRules.ts';
import type { NumaNode as _longshore_agent_v1_NumaNode, NumaNode__Output as _longshore_agent_v1_NumaNode__Output } from './longshore/agent/v1/NumaNode.ts';
import type { ObservedContainer as _longshore_agent_v1_ObservedContainer, ObservedContainer__Output as _longshore_agent_v1_ObservedContainer__Output } from './longshore/agent/v1/ObservedContainer.ts';
import type { Ping as _longshore_agent_v1_Ping, Ping__Output as _longshore_agent_v1_Ping__Output } from './longshore/agent/v1/Ping.ts';
import type { Pong as _longshore_agent_v1_Pong, Pong__Output as _longshore_agent_v1_Pong__Output } from './longshore/agent/v1/Pong.ts';
import type { PrepareImage as _longshore_agent_v1_PrepareImage, PrepareImage__Output as _longshore_agent_v1_PrepareImage__Output } from './longshore/agent/v1/PrepareImage.ts';
import type { Proceed as _longshore_agent_v1_Proceed, Proceed__Output as _longshore_agent_v1_Proceed__Output } from './longshore/agent/v1/Proceed.ts';
import type { ProveRequest as _longshore_agent_v1_ProveRequest, ProveRequest__Output as _longshore_agent_v1_ProveRequest__Output } from './longshore/agent/v1/ProveRequest.ts';
import type { ProveResponse as _longshore_agent_v1_ProveResponse, ProveResponse__Output as _longshore_agent_v1_ProveResponse__Output } from './longshore/agent/v1/ProveResponse.ts';
import type { PullImageRequest as _longshore_agent_v1_PullImageRequest, PullImageRequest__Output as _longshore_agent_v1_PullImageRequest__Output } from './longshore/agent/v1/PullImageRequest.ts';
import type { PullImageResponse as _longshore_agent_v1_PullImageResponse, PullImageResponse__Output as _longshore_agent_v1_PullImageResponse__Output } from './longshore/agent/v1/PullImageResponse.ts';
import type { PushTo as _longshore_agent_v1_PushTo, PushTo__Output as _longshore_agent_v1_PushTo__Output } from './longshore/agent/v1/PushTo.ts';
import type { ReadinessProbe as _longshore_agent_v1_ReadinessProbe, ReadinessProbe__Output as _longshore_agent_v1_ReadinessProbe__Output } from './longshore/agent/v1/ReadinessProbe.ts';
import type { Refuse as _longshore_agent_v1_Refuse, Refuse__Output as _longshore_agent_v1_Refuse__Output } from './longshore/agent/v1/Refuse.ts';
import type { RegistryAuth as _longshore_agent_v1_RegistryAuth, RegistryAuth__Output as _longshore_agent_v1_RegistryAuth__Output } from './longshore/agent/v1/RegistryAuth.ts';
import type { RemoveCaches as _longshore_agent_v1_RemoveCaches, RemoveCaches__Output as _longshore_agent_v1_RemoveCaches__Output } from './longshore/agent/v1/RemoveCaches.ts';
import type { RemoveImages as _longshore_agent_v1_RemoveImages, RemoveImages__Output as _longshore_agent_v1_RemoveImages__Output } from './longshore/agent/v1/RemoveImages.ts';
import type { RenewCredentialRequest as _longshore_agent_v1_RenewCredentialRequest, RenewCredentialRequest__Output as _longshore_agent_v1_RenewCredentialRequest__Output } from './longshore/agent/v1/RenewCredentialRequest.ts';
import type { RenewCredentialResponse as _longshore_agent_v1_RenewCredentialResponse, RenewCredentialResponse__Output as _longshore_agent_v1_RenewCredentialResponse__Output } from './longshore/agent/v1/RenewCredentialResponse.ts';
import type { Revoked as _longshore_agent_v1_Revoked, Revoked__Output as _longshore_agent_v1_Revoked__Output } from './longshore/agent/v1/Revoked.ts';
import type { RevokedAttempt as _longshore_agent_v1_RevokedAttempt, RevokedAttempt__Output as _longshore_agent_v1_RevokedAttempt__Output } from './longshore/agent/v1/RevokedAttempt.ts';
import type { RunTask as _longshore_agent_v1_RunTask, RunTask__Output as _longshore_agent_v1_RunTask__Output } from './longshore/agent/v1/RunTask.ts';
import type { Samples as _longshore_agent_v1_Samples, Samples__Output as _longshore_agent_v1_Samples__Output } from './longshore/agent/v1/Samples.ts';
import type { ServeContainer as _longshore_agent_v1_ServeContainer, ServeContainer__Output as _longshore_agent_v1_ServeContainer__Output } from './longshore/agent/v1/ServeContainer.ts';
import type { ServeVolume as _longshore_agent_v1_ServeVolume, ServeVolume__Output as _longshore_agent_v1_ServeVolume__Output } from './longshore/agent/v1/ServeVolume.ts';
import type { Snapshot as _longshore_agent_v1_Snapshot, Snapshot__Output as _longshore_agent_v1_Snapshot__Output } from './longshore/agent/v1/Snapshot.ts';
import type { StartPhase as _longshore_agent_v1_StartPhase, StartPhase__Output as _longshore_agent_v1_StartPhase__Output } from './longshore/agent/v1/StartPhase.ts';
import type { StatusReport as _longshore_agent_v1_StatusReport, StatusReport__Output as _longshore_agent_v1_StatusReport__Output } from './longshore/agent/v1/StatusReport.ts';
import type { Superseded as _longshore_agent_v1_Superseded, Superseded__Output as _longshore_agent_v1_Superseded__Output } from './longshore/agent/v1/Superseded.ts';
import type { TaskBatchFromAgent as _longshore_agent_v1_TaskBatchFromAgent, TaskBatchFromAgent__Output as _longshore_agent_v1_TaskBatchFromAgent__Output } from './longshore/agent/v1/TaskBatchFromAgent.ts';
import type { TaskBatchToAgent as _longshore_agent_v1_TaskBatchToAgent, TaskBatchToAgent__Output as _longshore_agent_v1_TaskBatchToAgent__Output } from './longshore/agent/v1/TaskBatchToAgent.ts';
import type { TaskChunk as _longshore_agent_v1_TaskChunk, TaskChunk__Output as _longshore_agent_v1_TaskChunk__Output } from './longshore/agent/v1/TaskChunk.ts';
import type { TaskFromAgent as _longshore_agent_v1_TaskFromAgent, TaskFromAgent__Output as _longshore_agent_v1_TaskFromAgent__Output } from './longshore/agent/v1/TaskFromAgent.ts';
import type { TaskRefused as _longshore_agent_v1_TaskRefused, TaskRefused__Output as _longshore_agent_v1_TaskRefused__Output } from './longshore/agent/v1/TaskRefused.ts';
import type { TaskReport as _longshore_agent_v1_TaskReport, TaskReport__Output as _longshore_agent_v1_TaskReport__Output } from './longshore/agent/v1/TaskReport.ts';
import type { TaskResult as _longshore_agent_v1_TaskResult, TaskResult__Output as _longshore_agent_v1_TaskResult__Output } from './longshore/agent/v1/TaskResult.ts';
import type { TaskStarted as _longshore_agent_v1_TaskStarted, TaskStarted__Output as _longshore_agent_v1_TaskStarted__Output } from './longshore/agent/v1/TaskStarted.ts';
import type { TaskToAgent as _longshore_agent_v1_TaskToAgent, TaskToAgent__Output as _longshore_agent_v1_TaskToAgent__Output } from './longshore/agent/v1/TaskToAgent.ts';
import type { VolumeDrivers as _longshore_agent_v1_VolumeDrivers, VolumeDrivers__Output as _longshore_agent_v1_VolumeDrivers__Output } from './longshore/agent/v1/VolumeDrivers.ts';
import type { VolumeMount as _longshore_agent_v1_VolumeMount, VolumeMount__Output as _longshore_agent_v1_VolumeMount__Output } from './longshore/agent/v1/VolumeMount.ts';
import type { VolumeUse as _longshore_agent_v1_VolumeUse, VolumeUse__Output as _longshore_agent_v1_VolumeUse__Output } from './longshore/agent/v1/VolumeUse.ts';
import type { Welcome as _longshore_agent_v1_Welcome, Welcome__Output as _longshore_agent_v1_Welcome__Output } from './longshore/agent/v1/Welcome.ts';

type SubtypeConstructor<Constructor extends new (...args: any) => any, Subtype> = {
  new(...args: ConstructorParameters<Constructor>): Subtype;
};

export interface ProtoGrpcType {
  longshore: {
    agent: {
      v1: {
        Ack: MessageTypeDefinition<_longshore_agent_v1_Ack, _longshore_agent_v1_Ack__Output>
        AckResult: MessageTypeDefinition<_longshore_agent_v1_AckResult, _longshore_agent_v1_AckResult__Output>
        AgentLink: SubtypeConstructor<typeof grpc.Client, _longshore_agent_v1_AgentLinkClient> & { service: _longshore_agent_v1_AgentLinkDefinition }
        Assignment: MessageTypeDefinition<_longshore_agent_v1_Assignment, _longshore_agent_v1_Assignment__Output>
        AttemptsKnown: MessageTypeDefinition<_longshore_agent_v1_AttemptsKnown, _longshore_agent_v1_AttemptsKnown__Output>
        BasePythons: MessageTypeDefinition<_longshore_agent_v1_BasePythons, _longshore_agent_v1_BasePythons__Output>
        BodyChunk: MessageTypeDefinition<_longshore_agent_v1_BodyChunk, _longshore_agent_v1_BodyChunk__Output>
        BucketKeys: MessageTypeDefinition<_longshore_agent_v1_BucketKeys, _longshore_agent_v1_BucketKeys__Output>
        BucketMount: MessageTypeDefinition<_longshore_agent_v1_BucketMount, _longshore_agent_v1_BucketMount__Output>
        BuildImage: MessageTypeDefinition<_longshore_agent_v1_BuildImage, _longshore_agent_v1_BuildImage__Output>
        BuildStep: MessageTypeDefinition<_longshore_agent_v1_BuildStep, _longshore_agent_v1_BuildStep__Output>
        CacheUse: MessageTypeDefinition<_longshore_agent_v1_CacheUse, _longshore_agent_v1_CacheUse__Output>
        CachedVolume: MessageTypeDefinition<_longshore_agent_v1_CachedVolume, _longshore_agent_v1_CachedVolume__Output>
        CancelTask: MessageTypeDefinition<_longshore_agent_v1_CancelTask, _longshore_agent_v1_CancelTask__Output>
        ChallengeRequest: MessageTypeDefinition<_longshore_agent_v1_ChallengeRequest, _longshore_agent_v1_ChallengeRequest__Output>
        ChallengeResponse: MessageTypeDefinition<_longshore_agent_v1_ChallengeResponse, _longshore_agent_v1_ChallengeResponse__Output>
        ChangeContainer: MessageTypeDefinition<_longshore_agent_v1_ChangeContainer, _longshore_agent_v1_ChangeContainer__Output>
        ChangeGpu: MessageTypeDefinition<_longshore_agent_v1_ChangeGpu, _longshore_agent_v1_ChangeGpu__Output>
        CodeArchive: MessageTypeDefinition<_longshore_agent_v1_CodeArchive, _longshore_agent_v1_CodeArchive__Output>
        Conditions: MessageTypeDefinition<_longshore_agent_v1_Conditions, _longshore_agent_v1_Conditions__Output>
        ContainerChanged: MessageTypeDefinition<_longshore_agent_v1_ContainerChanged, _longshore_agent_v1_ContainerChanged__Output>
        ContainerDeltas: MessageTypeDefinition<_longshore_agent_v1_ContainerDeltas, _longshore_agent_v1_ContainerDeltas__Output>
        ContainerSample: MessageTypeDefinition<_longshore_agent_v1_ContainerSample, _longshore_agent_v1_ContainerSample__Output>
        ContainerSpec: MessageTypeDefinition<_longshore_agent_v1_ContainerSpec, _longshore_agent_v1_ContainerSpec__Output>
        ControlFromAgent: MessageTypeDefinition<_longshore_agent_v1_ControlFromAgent, _longshore_agent_v1_ControlFromAgent__Output>
        ControlToAgent: MessageTypeDefinition<_longshore_agent_v1_ControlToAgent, _longshore_agent_v1_ControlToAgent__Output>
        Delivered: MessageTypeDefinition<_longshore_agent_v1_Delivered, _longshore_agent_v1_Delivered__Output>
        Desired: MessageTypeDefinition<_longshore_agent_v1_Desired, _longshore_agent_v1_Desired__Output>
        DeviceReport: MessageTypeDefinition<_longshore_agent_v1_DeviceReport, _longshore_agent_v1_DeviceReport__Output>
        DeviceSample: MessageTypeDefinition<_longshore_agent_v1_DeviceSample, _longshore_agent_v1_DeviceSample__Output>
        FetchCodeRequest: MessageTypeDefinition<_longshore_agent_v1_FetchCodeRequest, _longshore_agent_v1_FetchCodeRequest__Output>
        FetchMetrics: MessageTypeDefinition<_longshore_agent_v1_FetchMetrics, _longshore_agent_v1_FetchMetrics__Output>
        GatewayRequest: MessageTypeDefinition<_longshore_agent_v1_GatewayRequest, _longshore_agent_v1_GatewayRequest__Output>
        GatewayRequestHead: MessageTypeDefinition<_longshore_agent_v1_GatewayRequestHead, _longshore_agent_v1_GatewayRequestHead__Output>
        GatewayResponse: MessageTypeDefinition<_longshore_agent_v1_GatewayResponse, _longshore_agent_v1_GatewayResponse__Output>
        GatewayResponseHead: MessageTypeDefinition<_longshore_agent_v1_GatewayResponseHead, _longshore_agent_v1_GatewayResponseHead__Output>
        Goodbye: MessageTypeDefinition<_longshore_agent_v1_Goodbye, _longshore_agent_v1_Goodbye__Output>
        Gpu: MessageTypeDefinition<_longshore_agent_v1_Gpu, _longshore_agent_v1_Gpu__Output>
        GpuUse: MessageTypeDefinition<_longshore_agent_v1_GpuUse, _longshore_agent_v1_GpuUse__Output>
        Heartbeat: MessageTypeDefinition<_longshore_agent_v1_Heartbeat, _longshore_agent_v1_Heartbeat__Output>
        HeartbeatAck: MessageTypeDefinition<_longshore_agent_v1_HeartbeatAck, _longshore_agent_v1_HeartbeatAck__Output>
        Hello: MessageTypeDefinition<_longshore_agent_v1_Hello, _longshore_agent_v1_Hello__Output>
        HostDisk: MessageTypeDefinition<_longshore_agent_v1_HostDisk, _longshore_agent_v1_HostDisk__Output>
        HostDrain: MessageTypeDefinition<_longshore_agent_v1_HostDrain, _longshore_agent_v1_HostDrain__Output>
        HostFacts: MessageTypeDefinition<_longshore_agent_v1_HostFacts, _longshore_agent_v1_HostFacts__Output>
        HostFileSystem: MessageTypeDefinition<_longshore_agent_v1_HostFileSystem, _longshore_agent_v1_HostFileSystem__Output>
        HostNic: MessageTypeDefinition<_longshore_agent_v1_HostNic, _longshore_agent_v1_HostNic__Output>
        HostWarning: MessageTypeDefinition<_longshore_agent_v1_HostWarning, _longshore_agent_v1_HostWarning__Output>
        HostWarnings: MessageTypeDefinition<_longshore_agent_v1_HostWarnings, _longshore_agent_v1_HostWarnings__Output>
        HttpHeader: MessageTypeDefinition<_longshore_agent_v1_HttpHeader, _longshore_agent_v1_HttpHeader__Output>
        ImagePrepared: MessageTypeDefinition<_longshore_agent_v1_ImagePrepared, _longshore_agent_v1_ImagePrepared__Output>
        Inventory: MessageTypeDefinition<_longshore_agent_v1_Inventory, _longshore_agent_v1_Inventory__Output>
        JoinRequest: MessageTypeDefinition<_longshore_agent_v1_JoinRequest, _longshore_agent_v1_JoinRequest__Output>
        JoinResponse: MessageTypeDefinition<_longshore_agent_v1_JoinResponse, _longshore_agent_v1_JoinResponse__Output>
        Later: MessageTypeDefinition<_longshore_agent_v1_Later, _longshore_agent_v1_Later__Output>
        LiveAttempt: MessageTypeDefinition<_longshore_agent_v1_LiveAttempt, _longshore_agent_v1_LiveAttempt__Output>
        LogAck: MessageTypeDefinition<_longshore_agent_v1_LogAck, _longshore_agent_v1_LogAck__Output>
        LogBatch: MessageTypeDefinition<_longshore_agent_v1_LogBatch, _longshore_agent_v1_LogBatch__Output>
        LogRecord: MessageTypeDefinition<_longshore_agent_v1_LogRecord, _longshore_agent_v1_LogRecord__Output>
        MachineSample: MessageTypeDefinition<_longshore_agent_v1_MachineSample, _longshore_agent_v1_MachineSample__Output>
        MetricsPage: MessageTypeDefinition<_longshore_agent_v1_MetricsPage, _longshore_agent_v1_MetricsPage__Output>
        NetworkRules: MessageTypeDefinition<_longshore_agent_v1_NetworkRules, _longshore_agent_v1_NetworkRules__Output>
        NumaNode: MessageTypeDefinition<_longshore_agent_v1_NumaNode, _longshore_agent_v1_NumaNode__Output>
        ObservedContainer: MessageTypeDefinition<_longshore_agent_v1_ObservedContainer, _longshore_agent_v1_ObservedContainer__Output>
        Ping: MessageTypeDefinition<_longshore_agent_v1_Ping, _longshore_agent_v1_Ping__Output>
        Pong: MessageTypeDefinition<_longshore_agent_v1_Pong, _longshore_agent_v1_Pong__Output>
        PrepareImage: MessageTypeDefinition<_longshore_agent_v1_PrepareImage, _longshore_agent_v1_PrepareImage__Output>
        Proceed: MessageTypeDefinition<_longshore_agent_v1_Proceed, _longshore_agent_v1_Proceed__Output>
        ProveRequest: MessageTypeDefinition<_longshore_agent_v1_ProveRequest, _longshore_agent_v1_ProveRequest__Output>
        ProveResponse: MessageTypeDefinition<_longshore_agent_v1_ProveResponse, _longshore_agent_v1_ProveResponse__Output>
        PullImageRequest: MessageTypeDefinition<_longshore_agent_v1_PullImageRequest, _longshore_agent_v1_PullImageRequest__Output>
        PullImageResponse: MessageTypeDefinition<_longshore_agent_v1_PullImageResponse, _longshore_agent_v1_PullImageResponse__Output>
        PushTo: MessageTypeDefinition<_longshore_agent_v1_PushTo, _longshore_agent_v1_PushTo__Output>
        ReadinessProbe: MessageTypeDefinition<_longshore_agent_v1_ReadinessProbe, _longshore_agent_v1_ReadinessProbe__Output>
        Refuse: MessageTypeDefinition<_longshore_agent_v1_Refuse, _longshore_agent_v1_Refuse__Output>
        RegistryAuth: MessageTypeDefinition<_longshore_agent_v1_RegistryAuth, _longshore_agent_v1_RegistryAuth__Output>
        RemoveCaches: MessageTypeDefinition<_longshore_agent_v1_RemoveCaches, _longshore_agent_v1_RemoveCaches__Output>
        RemoveImages: MessageTypeDefinition<_longshore_agent_v1_RemoveImages, _longshore_agent_v1_RemoveImages__Output>
        RenewCredentialRequest: MessageTypeDefinition<_longshore_agent_v1_RenewCredentialRequest, _longshore_agent_v1_RenewCredentialRequest__Output>
        RenewCredentialResponse: MessageTypeDefinition<_longshore_agent_v1_RenewCredentialResponse, _longshore_agent_v1_RenewCredentialResponse__Output>
        Revoked: MessageTypeDefinition<_longshore_agent_v1_Revoked, _longshore_agent_v1_Revoked__Output>
        RevokedAttempt: MessageTypeDefinition<_longshore_agent_v1_RevokedAttempt, _longshore_agent_v1_RevokedAttempt__Output>
        RunTask: MessageTypeDefinition<_longshore_agent_v1_RunTask, _longshore_agent_v1_RunTask__Output>
        Samples: MessageTypeDefinition<_longshore_agent_v1_Samples, _longshore_agent_v1_Samples__Output>
        ServeContainer: MessageTypeDefinition<_longshore_agent_v1_ServeContainer, _longshore_agent_v1_ServeContainer__Output>
        ServeVolume: MessageTypeDefinition<_longshore_agent_v1_ServeVolume, _longshore_agent_v1_ServeVolume__Output>
        Snapshot: MessageTypeDefinition<_longshore_agent_v1_Snapshot, _longshore_agent_v1_Snapshot__Output>
        StartPhase: MessageTypeDefinition<_longshore_agent_v1_StartPhase, _longshore_agent_v1_StartPhase__Output>
        StatusReport: MessageTypeDefinition<_longshore_agent_v1_StatusReport, _longshore_agent_v1_StatusReport__Output>
        Superseded: MessageTypeDefinition<_longshore_agent_v1_Superseded, _longshore_agent_v1_Superseded__Output>
        TaskBatchFromAgent: MessageTypeDefinition<_longshore_agent_v1_TaskBatchFromAgent, _longshore_agent_v1_TaskBatchFromAgent__Output>
        TaskBatchToAgent: MessageTypeDefinition<_longshore_agent_v1_TaskBatchToAgent, _longshore_agent_v1_TaskBatchToAgent__Output>
        TaskChunk: MessageTypeDefinition<_longshore_agent_v1_TaskChunk, _longshore_agent_v1_TaskChunk__Output>
        TaskFromAgent: MessageTypeDefinition<_longshore_agent_v1_TaskFromAgent, _longshore_agent_v1_TaskFromAgent__Output>
        TaskRefused: MessageTypeDefinition<_longshore_agent_v1_TaskRefused, _longshore_agent_v1_TaskRefused__Output>
        TaskReport: MessageTypeDefinition<_longshore_agent_v1_TaskReport, _longshore_agent_v1_TaskReport__Output>
        TaskResult: MessageTypeDefinition<_longshore_agent_v1_TaskResult, _longshore_agent_v1_TaskResult__Output>
        TaskStarted: MessageTypeDefinition<_longshore_agent_v1_TaskStarted, _longshore_agent_v1_TaskStarted__Output>
        TaskToAgent: MessageTypeDefinition<_longshore_agent_v1_TaskToAgent, _longshore_agent_v1_TaskToAgent__Output>
        VolumeDrivers: MessageTypeDefinition<_longshore_agent_v1_VolumeDrivers, _longshore_agent_v1_VolumeDrivers__Output>
        VolumeMount: MessageTypeDefinition<_longshore_agent_v1_VolumeMount, _longshore_agent_v1_VolumeMount__Output>
        VolumeUse: MessageTypeDefinition<_longshore_agent_v1_VolumeUse, _longshore_agent_v1_VolumeUse__Output>
        Welcome: MessageTypeDefinition<_longshore_agent_v1_Welcome, _longshore_agent_v1_Welcome__Output>
      }
    }
  }
}

