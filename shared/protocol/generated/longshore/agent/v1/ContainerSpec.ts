// Original file: shared/protocol/agent.proto

import type { CodeArchive as _longshore_agent_v1_CodeArchive, CodeArchive__Output as _longshore_agent_v1_CodeArchive__Output } from '../../../longshore/agent/v1/CodeArchive.ts';
import type { VolumeMount as _longshore_agent_v1_VolumeMount, VolumeMount__Output as _longshore_agent_v1_VolumeMount__Output } from '../../../longshore/agent/v1/VolumeMount.ts';
import type { ReadinessProbe as _longshore_agent_v1_ReadinessProbe, ReadinessProbe__Output as _longshore_agent_v1_ReadinessProbe__Output } from '../../../longshore/agent/v1/ReadinessProbe.ts';
import type { Long } from '@grpc/proto-loader';

export interface ContainerSpec {
  'workspaceId'?: (string);
  'stubId'?: (string);
  'deploymentId'?: (string);
  'stubType'?: (string);
  'handler'?: (string);
  'onStart'?: (string);
  'image'?: (string);
  'pythonVersion'?: (string);
  'cpuMillicores'?: (number);
  'memoryBytes'?: (number | string | Long);
  'workers'?: (number);
  'concurrentRequests'?: (number);
  'timeoutMs'?: (number);
  'code'?: (_longshore_agent_v1_CodeArchive | null);
  'env'?: ({[key: string]: string});
  'containerToken'?: (string);
  'gpuUuids'?: (string)[];
  'blockNetwork'?: (boolean);
  'tracebacks'?: (boolean);
  'startTimeoutMs'?: (number);
  'keepWarmSeconds'?: (number);
  'volumes'?: (_longshore_agent_v1_VolumeMount)[];
  'allowList'?: (string)[];
  'kind'?: (string);
  'imageDigest'?: (string);
  'secretNames'?: (string)[];
  'stopAfterDisconnectMs'?: (number);
  'workerMode'?: (string);
  'entrypoint'?: (string)[];
  'ports'?: (number)[];
  'readinessProbe'?: (_longshore_agent_v1_ReadinessProbe | null);
  'networkVersion'?: (number);
}

export interface ContainerSpec__Output {
  'workspaceId': (string);
  'stubId': (string);
  'deploymentId': (string);
  'stubType': (string);
  'handler': (string);
  'onStart': (string);
  'image': (string);
  'pythonVersion': (string);
  'cpuMillicores': (number);
  'memoryBytes': (number);
  'workers': (number);
  'concurrentRequests': (number);
  'timeoutMs': (number);
  'code': (_longshore_agent_v1_CodeArchive__Output | null);
  'env': ({[key: string]: string});
  'containerToken': (string);
  'gpuUuids': (string)[];
  'blockNetwork': (boolean);
  'tracebacks': (boolean);
  'startTimeoutMs': (number);
  'keepWarmSeconds': (number);
  'volumes': (_longshore_agent_v1_VolumeMount__Output)[];
  'allowList': (string)[];
  'kind': (string);
  'imageDigest': (string);
  'secretNames': (string)[];
  'stopAfterDisconnectMs': (number);
  'workerMode': (string);
  'entrypoint': (string)[];
  'ports': (number)[];
  'readinessProbe': (_longshore_agent_v1_ReadinessProbe__Output | null);
  'networkVersion': (number);
}
