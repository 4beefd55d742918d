// Original file: shared/protocol/agent.proto


export interface JoinRequest {
  'joinToken'?: (string);
  'nonce'?: (string);
  'machineFingerprint'?: (string);
  'hostname'?: (string);
  'publicKey'?: (string);
  'agentVersion'?: (string);
  'protocol'?: (number);
  'enrolment'?: (boolean);
}

export interface JoinRequest__Output {
  'joinToken': (string);
  'nonce': (string);
  'machineFingerprint': (string);
  'hostname': (string);
  'publicKey': (string);
  'agentVersion': (string);
  'protocol': (number);
  'enrolment': (boolean);
}
