// Original file: shared/protocol/agent.proto


export interface ReadinessProbe {
  'type'?: (string);
  'port'?: (number);
  'path'?: (string);
  'command'?: (string)[];
  'intervalMs'?: (number);
  'timeoutMs'?: (number);
  'morePaths'?: (string)[];
}

export interface ReadinessProbe__Output {
  'type': (string);
  'port': (number);
  'path': (string);
  'command': (string)[];
  'intervalMs': (number);
  'timeoutMs': (number);
  'morePaths': (string)[];
}
