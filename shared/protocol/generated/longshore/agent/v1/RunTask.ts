// Original file: shared/protocol/agent.proto


export interface RunTask {
  'taskId'?: (string);
  'token'?: (string);
  'containerId'?: (string);
  'timeoutMs'?: (number);
  'query'?: (string);
  'input'?: (Buffer | Uint8Array | string);
  'part'?: (number);
  'last'?: (boolean);
  'stream'?: (boolean);
  'facts'?: (Buffer | Uint8Array | string);
}

export interface RunTask__Output {
  'taskId': (string);
  'token': (string);
  'containerId': (string);
  'timeoutMs': (number);
  'query': (string);
  'input': (Buffer);
  'part': (number);
  'last': (boolean);
  'stream': (boolean);
  'facts': (Buffer);
}
