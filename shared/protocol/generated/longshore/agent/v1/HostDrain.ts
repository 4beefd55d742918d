// Original file: shared/protocol/agent.proto


export interface HostDrain {
  'on'?: (boolean);
  'secondsLeft'?: (number);
}

export interface HostDrain__Output {
  'on': (boolean);
  'secondsLeft': (number);
}
