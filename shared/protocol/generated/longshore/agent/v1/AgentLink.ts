// Original file: shared/protocol/agent.proto

import type * as grpc from '@grpc/grpc-js'
import type { MethodDefinition } from '@grpc/proto-loader'
import type { BodyChunk as _longshore_agent_v1_BodyChunk, BodyChunk__Output as _longshore_agent_v1_BodyChunk__Output } from '../../../longshore/agent/v1/BodyChunk.ts';
import type { ChallengeRequest as _longshore_agent_v1_ChallengeRequest, ChallengeRequest__Output as _longshore_agent_v1_ChallengeRequest__Output } from '../../../longshore/agent/v1/ChallengeRequest.ts';
import type { ChallengeResponse as _longshore_agent_v1_ChallengeResponse, ChallengeResponse__Output as _longshore_agent_v1_ChallengeResponse__Output } from '../../../longshore/agent/v1/ChallengeResponse.ts';
import type { ControlFromAgent as _longshore_agent_v1_ControlFromAgent, ControlFromAgent__Output as _longshore_agent_v1_ControlFromAgent__Output } from '../../../longshore/agent/v1/ControlFromAgent.ts';
import type { ControlToAgent as _longshore_agent_v1_ControlToAgent, ControlToAgent__Output as _longshore_agent_v1_ControlToAgent__Output } from '../../../longshore/agent/v1/ControlToAgent.ts';
import type { Delivered as _longshore_agent_v1_Delivered, Delivered__Output as _longshore_agent_v1_Delivered__Output } from '../../../longshore/agent/v1/Delivered.ts';
import type { FetchCodeRequest as _longshore_agent_v1_FetchCodeRequest, FetchCodeRequest__Output as _longshore_agent_v1_FetchCodeRequest__Output } from '../../../longshore/agent/v1/FetchCodeRequest.ts';
import type { GatewayRequest as _longshore_agent_v1_GatewayRequest, GatewayRequest__Output as _longshore_agent_v1_GatewayRequest__Output } from '../../../longshore/agent/v1/GatewayRequest.ts';
import type { GatewayResponse as _longshore_agent_v1_GatewayResponse, GatewayResponse__Output as _longshore_agent_v1_GatewayResponse__Output } from '../../../longshore/agent/v1/GatewayResponse.ts';
import type { JoinRequest as _longshore_agent_v1_JoinRequest, JoinRequest__Output as _longshore_agent_v1_JoinRequest__Output } from '../../../longshore/agent/v1/JoinRequest.ts';
import type { JoinResponse as _longshore_agent_v1_JoinResponse, JoinResponse__Output as _longshore_agent_v1_JoinResponse__Output } from '../../../longshore/agent/v1/JoinResponse.ts';
import type { LogAck as _longshore_agent_v1_LogAck, LogAck__Output as _longshore_agent_v1_LogAck__Output } from '../../../longshore/agent/v1/LogAck.ts';
import type { LogBatch as _longshore_agent_v1_LogBatch, LogBatch__Output as _longshore_agent_v1_LogBatch__Output } from '../../../longshore/agent/v1/LogBatch.ts';
import type { MetricsPage as _longshore_agent_v1_MetricsPage, MetricsPage__Output as _longshore_agent_v1_MetricsPage__Output } from '../../../longshore/agent/v1/MetricsPage.ts';
import type { ProveRequest as _longshore_agent_v1_ProveRequest, ProveRequest__Output as _longshore_agent_v1_ProveRequest__Output } from '../../../longshore/agent/v1/ProveRequest.ts';
import type { ProveResponse as _longshore_agent_v1_ProveResponse, ProveResponse__Output as _longshore_agent_v1_ProveResponse__Output } from '../../../longshore/agent/v1/ProveResponse.ts';
import type { PullImageRequest as _longshore_agent_v1_PullImageRequest, PullImageRequest__Output as _longshore_agent_v1_PullImageRequest__Output } from '../../../longshore/agent/v1/PullImageRequest.ts';
import type { PullImageResponse as _longshore_agent_v1_PullImageResponse, PullImageResponse__Output as _longshore_agent_v1_PullImageResponse__Output } from '../../../longshore/agent/v1/PullImageResponse.ts';
import type { RenewCredentialRequest as _longshore_agent_v1_RenewCredentialRequest, RenewCredentialRequest__Output as _longshore_agent_v1_RenewCredentialRequest__Output } from '../../../longshore/agent/v1/RenewCredentialRequest.ts';
import type { RenewCredentialResponse as _longshore_agent_v1_RenewCredentialResponse, RenewCredentialResponse__Output as _longshore_agent_v1_RenewCredentialResponse__Output } from '../../../longshore/agent/v1/RenewCredentialResponse.ts';
import type { TaskFromAgent as _longshore_agent_v1_TaskFromAgent, TaskFromAgent__Output as _longshore_agent_v1_TaskFromAgent__Output } from '../../../longshore/agent/v1/TaskFromAgent.ts';
import type { TaskToAgent as _longshore_agent_v1_TaskToAgent, TaskToAgent__Output as _longshore_agent_v1_TaskToAgent__Output } from '../../../longshore/agent/v1/TaskToAgent.ts';

export interface AgentLinkClient extends grpc.Client {
  CallGateway(metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientDuplexStream<_longshore_agent_v1_GatewayRequest, _longshore_agent_v1_GatewayResponse__Output>;
  CallGateway(options?: grpc.CallOptions): grpc.ClientDuplexStream<_longshore_agent_v1_GatewayRequest, _longshore_agent_v1_GatewayResponse__Output>;
  callGateway(metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientDuplexStream<_longshore_agent_v1_GatewayRequest, _longshore_agent_v1_GatewayResponse__Output>;
  callGateway(options?: grpc.CallOptions): grpc.ClientDuplexStream<_longshore_agent_v1_GatewayRequest, _longshore_agent_v1_GatewayResponse__Output>;
  
  Challenge(argument: _longshore_agent_v1_ChallengeRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_ChallengeResponse__Output>): grpc.ClientUnaryCall;
  Challenge(argument: _longshore_agent_v1_ChallengeRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_longshore_agent_v1_ChallengeResponse__Output>): grpc.ClientUnaryCall;
  Challenge(argument: _longshore_agent_v1_ChallengeRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_ChallengeResponse__Output>): grpc.ClientUnaryCall;
  Challenge(argument: _longshore_agent_v1_ChallengeRequest, callback: grpc.requestCallback<_longshore_agent_v1_ChallengeResponse__Output>): grpc.ClientUnaryCall;
  challenge(argument: _longshore_agent_v1_ChallengeRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_ChallengeResponse__Output>): grpc.ClientUnaryCall;
  challenge(argument: _longshore_agent_v1_ChallengeRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_longshore_agent_v1_ChallengeResponse__Output>): grpc.ClientUnaryCall;
  challenge(argument: _longshore_agent_v1_ChallengeRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_ChallengeResponse__Output>): grpc.ClientUnaryCall;
  challenge(argument: _longshore_agent_v1_ChallengeRequest, callback: grpc.requestCallback<_longshore_agent_v1_ChallengeResponse__Output>): grpc.ClientUnaryCall;
  
  Control(metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientDuplexStream<_longshore_agent_v1_ControlFromAgent, _longshore_agent_v1_ControlToAgent__Output>;
  Control(options?: grpc.CallOptions): grpc.ClientDuplexStream<_longshore_agent_v1_ControlFromAgent, _longshore_agent_v1_ControlToAgent__Output>;
  control(metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientDuplexStream<_longshore_agent_v1_ControlFromAgent, _longshore_agent_v1_ControlToAgent__Output>;
  control(options?: grpc.CallOptions): grpc.ClientDuplexStream<_longshore_agent_v1_ControlFromAgent, _longshore_agent_v1_ControlToAgent__Output>;
  
  DeliverMetrics(argument: _longshore_agent_v1_MetricsPage, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_Delivered__Output>): grpc.ClientUnaryCall;
  DeliverMetrics(argument: _longshore_agent_v1_MetricsPage, metadata: grpc.Metadata, callback: grpc.requestCallback<_longshore_agent_v1_Delivered__Output>): grpc.ClientUnaryCall;
  DeliverMetrics(argument: _longshore_agent_v1_MetricsPage, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_Delivered__Output>): grpc.ClientUnaryCall;
  DeliverMetrics(argument: _longshore_agent_v1_MetricsPage, callback: grpc.requestCallback<_longshore_agent_v1_Delivered__Output>): grpc.ClientUnaryCall;
  deliverMetrics(argument: _longshore_agent_v1_MetricsPage, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_Delivered__Output>): grpc.ClientUnaryCall;
  deliverMetrics(argument: _longshore_agent_v1_MetricsPage, metadata: grpc.Metadata, callback: grpc.requestCallback<_longshore_agent_v1_Delivered__Output>): grpc.ClientUnaryCall;
  deliverMetrics(argument: _longshore_agent_v1_MetricsPage, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_Delivered__Output>): grpc.ClientUnaryCall;
  deliverMetrics(argument: _longshore_agent_v1_MetricsPage, callback: grpc.requestCallback<_longshore_agent_v1_Delivered__Output>): grpc.ClientUnaryCall;
  
  FetchCode(argument: _longshore_agent_v1_FetchCodeRequest, metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientReadableStream<_longshore_agent_v1_BodyChunk__Output>;
  FetchCode(argument: _longshore_agent_v1_FetchCodeRequest, options?: grpc.CallOptions): grpc.ClientReadableStream<_longshore_agent_v1_BodyChunk__Output>;
  fetchCode(argument: _longshore_agent_v1_FetchCodeRequest, metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientReadableStream<_longshore_agent_v1_BodyChunk__Output>;
  fetchCode(argument: _longshore_agent_v1_FetchCodeRequest, options?: grpc.CallOptions): grpc.ClientReadableStream<_longshore_agent_v1_BodyChunk__Output>;
  
  Join(argument: _longshore_agent_v1_JoinRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_JoinResponse__Output>): grpc.ClientUnaryCall;
  Join(argument: _longshore_agent_v1_JoinRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_longshore_agent_v1_JoinResponse__Output>): grpc.ClientUnaryCall;
  Join(argument: _longshore_agent_v1_JoinRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_JoinResponse__Output>): grpc.ClientUnaryCall;
  Join(argument: _longshore_agent_v1_JoinRequest, callback: grpc.requestCallback<_longshore_agent_v1_JoinResponse__Output>): grpc.ClientUnaryCall;
  join(argument: _longshore_agent_v1_JoinRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_JoinResponse__Output>): grpc.ClientUnaryCall;
  join(argument: _longshore_agent_v1_JoinRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_longshore_agent_v1_JoinResponse__Output>): grpc.ClientUnaryCall;
  join(argument: _longshore_agent_v1_JoinRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_JoinResponse__Output>): grpc.ClientUnaryCall;
  join(argument: _longshore_agent_v1_JoinRequest, callback: grpc.requestCallback<_longshore_agent_v1_JoinResponse__Output>): grpc.ClientUnaryCall;
  
  Logs(metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientDuplexStream<_longshore_agent_v1_LogBatch, _longshore_agent_v1_LogAck__Output>;
  Logs(options?: grpc.CallOptions): grpc.ClientDuplexStream<_longshore_agent_v1_LogBatch, _longshore_agent_v1_LogAck__Output>;
  logs(metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientDuplexStream<_longshore_agent_v1_LogBatch, _longshore_agent_v1_LogAck__Output>;
  logs(options?: grpc.CallOptions): grpc.ClientDuplexStream<_longshore_agent_v1_LogBatch, _longshore_agent_v1_LogAck__Output>;
  
  Prove(argument: _longshore_agent_v1_ProveRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_ProveResponse__Output>): grpc.ClientUnaryCall;
  Prove(argument: _longshore_agent_v1_ProveRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_longshore_agent_v1_ProveResponse__Output>): grpc.ClientUnaryCall;
  Prove(argument: _longshore_agent_v1_ProveRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_ProveResponse__Output>): grpc.ClientUnaryCall;
  Prove(argument: _longshore_agent_v1_ProveRequest, callback: grpc.requestCallback<_longshore_agent_v1_ProveResponse__Output>): grpc.ClientUnaryCall;
  prove(argument: _longshore_agent_v1_ProveRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_ProveResponse__Output>): grpc.ClientUnaryCall;
  prove(argument: _longshore_agent_v1_ProveRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_longshore_agent_v1_ProveResponse__Output>): grpc.ClientUnaryCall;
  prove(argument: _longshore_agent_v1_ProveRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_ProveResponse__Output>): grpc.ClientUnaryCall;
  prove(argument: _longshore_agent_v1_ProveRequest, callback: grpc.requestCallback<_longshore_agent_v1_ProveResponse__Output>): grpc.ClientUnaryCall;
  
  PullImage(argument: _longshore_agent_v1_PullImageRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_PullImageResponse__Output>): grpc.ClientUnaryCall;
  PullImage(argument: _longshore_agent_v1_PullImageRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_longshore_agent_v1_PullImageResponse__Output>): grpc.ClientUnaryCall;
  PullImage(argument: _longshore_agent_v1_PullImageRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_PullImageResponse__Output>): grpc.ClientUnaryCall;
  PullImage(argument: _longshore_agent_v1_PullImageRequest, callback: grpc.requestCallback<_longshore_agent_v1_PullImageResponse__Output>): grpc.ClientUnaryCall;
  pullImage(argument: _longshore_agent_v1_PullImageRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_PullImageResponse__Output>): grpc.ClientUnaryCall;
  pullImage(argument: _longshore_agent_v1_PullImageRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_longshore_agent_v1_PullImageResponse__Output>): grpc.ClientUnaryCall;
  pullImage(argument: _longshore_agent_v1_PullImageRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_PullImageResponse__Output>): grpc.ClientUnaryCall;
  pullImage(argument: _longshore_agent_v1_PullImageRequest, callback: grpc.requestCallback<_longshore_agent_v1_PullImageResponse__Output>): grpc.ClientUnaryCall;
  
  RenewCredential(argument: _longshore_agent_v1_RenewCredentialRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_RenewCredentialResponse__Output>): grpc.ClientUnaryCall;
  RenewCredential(argument: _longshore_agent_v1_RenewCredentialRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_longshore_agent_v1_RenewCredentialResponse__Output>): grpc.ClientUnaryCall;
  RenewCredential(argument: _longshore_agent_v1_RenewCredentialRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_RenewCredentialResponse__Output>): grpc.ClientUnaryCall;
  RenewCredential(argument: _longshore_agent_v1_RenewCredentialRequest, callback: grpc.requestCallback<_longshore_agent_v1_RenewCredentialResponse__Output>): grpc.ClientUnaryCall;
  renewCredential(argument: _longshore_agent_v1_RenewCredentialRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_RenewCredentialResponse__Output>): grpc.ClientUnaryCall;
  renewCredential(argument: _longshore_agent_v1_RenewCredentialRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_longshore_agent_v1_RenewCredentialResponse__Output>): grpc.ClientUnaryCall;
  renewCredential(argument: _longshore_agent_v1_RenewCredentialRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_longshore_agent_v1_RenewCredentialResponse__Output>): grpc.ClientUnaryCall;
  renewCredential(argument: _longshore_agent_v1_RenewCredentialRequest, callback: grpc.requestCallback<_longshore_agent_v1_RenewCredentialResponse__Output>): grpc.ClientUnaryCall;
  
  Tasks(metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientDuplexStream<_longshore_agent_v1_TaskFromAgent, _longshore_agent_v1_TaskToAgent__Output>;
  Tasks(options?: grpc.CallOptions): grpc.ClientDuplexStream<_longshore_agent_v1_TaskFromAgent, _longshore_agent_v1_TaskToAgent__Output>;
  tasks(metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientDuplexStream<_longshore_agent_v1_TaskFromAgent, _longshore_agent_v1_TaskToAgent__Output>;
  tasks(options?: grpc.CallOptions): grpc.ClientDuplexStream<_longshore_agent_v1_TaskFromAgent, _longshore_agent_v1_TaskToAgent__Output>;
  
}

export interface AgentLinkHandlers extends grpc.UntypedServiceImplementation {
  CallGateway: grpc.handleBidiStreamingCall<_longshore_agent_v1_GatewayRequest__Output, _longshore_agent_v1_GatewayResponse>;
  
  Challenge: grpc.handleUnaryCall<_longshore_agent_v1_ChallengeRequest__Output, _longshore_agent_v1_ChallengeResponse>;
  
  Control: grpc.handleBidiStreamingCall<_longshore_agent_v1_ControlFromAgent__Output, _longshore_agent_v1_ControlToAgent>;
  
  DeliverMetrics: grpc.handleUnaryCall<_longshore_agent_v1_MetricsPage__Output, _longshore_agent_v1_Delivered>;
  
  FetchCode: grpc.handleServerStreamingCall<_longshore_agent_v1_FetchCodeRequest__Output, _longshore_agent_v1_BodyChunk>;
  
  Join: grpc.handleUnaryCall<_longshore_agent_v1_JoinRequest__Output, _longshore_agent_v1_JoinResponse>;
  
  Logs: grpc.handleBidiStreamingCall<_longshore_agent_v1_LogBatch__Output, _longshore_agent_v1_LogAck>;
  
  Prove: grpc.handleUnaryCall<_longshore_agent_v1_ProveRequest__Output, _longshore_agent_v1_ProveResponse>;
  
  PullImage: grpc.handleUnaryCall<_longshore_agent_v1_PullImageRequest__Output, _longshore_agent_v1_PullImageResponse>;
  
  RenewCredential: grpc.handleUnaryCall<_longshore_agent_v1_RenewCredentialRequest__Output, _longshore_agent_v1_RenewCredentialResponse>;
  
  Tasks: grpc.handleBidiStreamingCall<_longshore_agent_v1_TaskFromAgent__Output, _longshore_agent_v1_TaskToAgent>;
  
}

export interface AgentLinkDefinition extends grpc.ServiceDefinition {
  CallGateway: MethodDefinition<_longshore_agent_v1_GatewayRequest, _longshore_agent_v1_GatewayResponse, _longshore_agent_v1_GatewayRequest__Output, _longshore_agent_v1_GatewayResponse__Output>
  Challenge: MethodDefinition<_longshore_agent_v1_ChallengeRequest, _longshore_agent_v1_ChallengeResponse, _longshore_agent_v1_ChallengeRequest__Output, _longshore_agent_v1_ChallengeResponse__Output>
  Control: MethodDefinition<_longshore_agent_v1_ControlFromAgent, _longshore_agent_v1_ControlToAgent, _longshore_agent_v1_ControlFromAgent__Output, _longshore_agent_v1_ControlToAgent__Output>
  DeliverMetrics: MethodDefinition<_longshore_agent_v1_MetricsPage, _longshore_agent_v1_Delivered, _longshore_agent_v1_MetricsPage__Output, _longshore_agent_v1_Delivered__Output>
  FetchCode: MethodDefinition<_longshore_agent_v1_FetchCodeRequest, _longshore_agent_v1_BodyChunk, _longshore_agent_v1_FetchCodeRequest__Output, _longshore_agent_v1_BodyChunk__Output>
  Join: MethodDefinition<_longshore_agent_v1_JoinRequest, _longshore_agent_v1_JoinResponse, _longshore_agent_v1_JoinRequest__Output, _longshore_agent_v1_JoinResponse__Output>
  Logs: MethodDefinition<_longshore_agent_v1_LogBatch, _longshore_agent_v1_LogAck, _longshore_agent_v1_LogBatch__Output, _longshore_agent_v1_LogAck__Output>
  Prove: MethodDefinition<_longshore_agent_v1_ProveRequest, _longshore_agent_v1_ProveResponse, _longshore_agent_v1_ProveRequest__Output, _longshore_agent_v1_ProveResponse__Output>
  PullImage: MethodDefinition<_longshore_agent_v1_PullImageRequest, _longshore_agent_v1_PullImageResponse, _longshore_agent_v1_PullImageRequest__Output, _longshore_agent_v1_PullImageResponse__Output>
  RenewCredential: MethodDefinition<_longshore_agent_v1_RenewCredentialRequest, _longshore_agent_v1_RenewCredentialResponse, _longshore_agent_v1_RenewCredentialRequest__Output, _longshore_agent_v1_RenewCredentialResponse__Output>
  Tasks: MethodDefinition<_longshore_agent_v1_TaskFromAgent, _longshore_agent_v1_TaskToAgent, _longshore_agent_v1_TaskFromAgent__Output, _longshore_agent_v1_TaskToAgent__Output>
}
