// Secrets.
import type { Service } from './service.ts';

export const SECRET: Service = {
  pack: 'secret',
  name: 'SecretService',
  messages: {
    CreateSecretRequest: 'name 2; value 3; hosts 4 string[]',
    CreateSecretResponse: 'ok 1 bool; err_msg 2; id 3; name 4; hosts 5 string[]; placeholder 6',
    DeleteSecretRequest: 'name 1',
    DeleteSecretResponse: 'ok 1 bool; err_msg 2',
    GetSecretRequest: 'name 1',
    GetSecretResponse: 'ok 1 bool; err_msg 2; secret 3 Secret',
    ListSecretsRequest: '',
    ListSecretsResponse: 'ok 1 bool; err_msg 2; secrets 3 Secret[]',
    Secret: `
      id 1; name 2; value 3; last_updated_by 5; created_at 6 time; updated_at 7 time; hosts 8 string[];
      placeholder 9`,
    UpdateSecretRequest: 'name 2; value 3; hosts 4 string[]; clear_hosts 5 bool',
    UpdateSecretResponse: 'ok 1 bool; err_msg 2',
  },
  calls: { CreateSecret: {}, UpdateSecret: {}, DeleteSecret: {}, GetSecret: {}, ListSecrets: {} },
};
