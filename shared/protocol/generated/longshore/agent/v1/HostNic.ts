// Original file: shared/protocol/agent.proto


export interface HostNic {
  'name'?: (string);
  'speedMbps'?: (number);
  'up'?: (boolean);
  'driver'?: (string);
  'numaNode'?: (number);
}

export interface HostNic__Output {
  'name': (string);
  'speedMbps': (number);
  'up': (boolean);
  'driver': (string);
  'numaNode': (number);
}
