// Original file: shared/protocol/agent.proto


export interface TaskResult {
  'taskId'?: (string);
  'token'?: (string);
  'containerId'?: (string);
  'outcome'?: (string);
  'durationMs'?: (number);
  'chunks'?: (number);
  'body'?: (Buffer | Uint8Array | string);
  'started'?: (boolean);
}

export interface TaskResult__Output {
  'taskId': (string);
  'token': (string);
  'containerId': (string);
  'outcome': (string);
  'durationMs': (number);
  'chunks': (number);
  'body': (Buffer);
  'started': (boolean);
}
