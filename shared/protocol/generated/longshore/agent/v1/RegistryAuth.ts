// Original file: shared/protocol/agent.proto


export interface RegistryAuth {
  'serverAddress'?: (string);
  'username'?: (string);
  'password'?: (string);
  'identityToken'?: (string);
}

export interface RegistryAuth__Output {
  'serverAddress': (string);
  'username': (string);
  'password': (string);
  'identityToken': (string);
}
