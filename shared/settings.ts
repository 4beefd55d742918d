/**
 * The name of every setting of every program. They may stand in one environment together, so each daemon takes the others' names for known and refuses
 * what nobody knows: a misspelt setting must not be silently without effect. A test holds this list against the schemas.
 */
export const SETTING_NAMES: readonly string[] = [
  // scheduler
  'LONGSHORE_DATA_DIR',
  'LONGSHORE_HTTP_ADDRESS',
  'LONGSHORE_AGENT_ADDRESS',
  'LONGSHORE_EXTERNAL_URL',
  'LONGSHORE_EXTERNAL_AGENT_ADDRESS',
  'LONGSHORE_INVOKE_DOMAIN',
  'LONGSHORE_REDIS_SOCKET',
  'LONGSHORE_REDIS_PREFIX',
  'LONGSHORE_SECRET_KEY_FILE',
  'LONGSHORE_BOOTSTRAP_TOKEN',
  'LONGSHORE_METRICS_TOKEN',
  'LONGSHORE_MAX_OBJECT_BYTES',
  'LONGSHORE_MAX_INVOKE_BODY_BYTES',
  'LONGSHORE_MAX_RESULT_BYTES',
  'LONGSHORE_MAX_CONTAINERS',
  'LONGSHORE_LOG_LEVEL',
  // agent
  'LONGSHORE_SCHEDULER_ADDRESS',
  'LONGSHORE_JOIN_TOKEN',
  'LONGSHORE_AGENT_METRICS_ADDRESS',
  'LONGSHORE_BASE_IMAGE',
  'LONGSHORE_DEFAULT_PYTHON',
  'LONGSHORE_CA_BUNDLE',
  'LONGSHORE_AGENT_CPU',
  'LONGSHORE_AGENT_MEMORY',
  'LONGSHORE_AGENT_NETWORK',
  'LONGSHORE_CODE_CACHE_BYTES',
  // command line, and what clients read
  'LONGSHORE_CONTEXT_FILE',
  'LONGSHORE_URL',
  'LONGSHORE_TOKEN',
];
