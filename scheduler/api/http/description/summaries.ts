// The purpose of each gateway operation, in one line: for openapi.json and the
// page made of it. A test fails when a line is missing, or names no operation.

const NOT_YET = 'Not available yet: answers ok false';

export const SUMMARIES: Readonly<Record<string, string>> = {
  Authorize: 'Whose token this is; the first call of an installation without a workspace makes one',
  SignPayload: 'Sign a text with the key of the workspace, as callbacks are signed',
  ListContainers: 'Containers that are wanted or run',
  StopContainer: 'Stop one container: TERM, and KILL after 30 s; its attempts go back to their queue',
  CheckpointContainer: NOT_YET,
  ListDeployments: 'Deployments, newest first',
  StopDeployment: 'Stop it: its containers end, calls are refused, queued tasks are kept until their TTL',
  StartDeployment: 'Start a stopped one again',
  ScaleDeployment: 'Always so many containers; 0: none until work comes',
  DeleteDeployment: 'Delete it: queued tasks are cancelled, its name gets the next version when deployed again',
  VerifyImageBuild: 'Whether an image exists, or has to be built',
  BuildImage: 'Build an image; those that need no build are there at once',
  CreateMachine: 'Admit a machine to a pool; the answer holds the token to join with, this once',
  ListMachines: 'Machines by pool, and which GPU models there are',
  DeleteMachine: 'Forget a machine: one that is pending, expired, lost or drained',
  HeadObject: 'Whether an archive with that hash is there already',
  CreateObject: 'Announce an archive; the answer holds the address to upload it to',
  GetOrCreateStub:
    'The recipe of a handler: code, image, resources, volumes, autoscaler; one that is there already is used again',
  DeployStub: 'Deploy a stub under a name: the next version, with its invoke URL',
  GetURL: 'The invoke URL of a deployment, or of a stub',
  ListTasks: 'Tasks, newest first',
  StartTask: 'A runner of your own begins a task',
  EndTask: 'A runner of your own ends a task',
  StopTasks: 'Cancel tasks',
  ListTokens: 'Tokens of the workspace, keys masked',
  CreateToken: 'Make a token; the answer holds its key, this once',
  ToggleToken: 'Switch a token off or on, at once everywhere',
  DeleteToken: 'Delete a token, at once everywhere',
  GetOrCreateVolume: 'A volume by its name',
  ListWorkers: 'Machines as capacity: what they have, what is free, what they do',
  CordonWorker: 'No new containers there; what runs goes on',
  UncordonWorker: 'New containers again',
  DrainWorker: 'Cordon, and have its containers leave by a deadline',
  CreatePool: 'Make a pool',
  GetPool: 'One pool with what it holds and how it is set',
  ChangePool: 'Change settings of a pool',
  DeletePool: 'Delete a pool without machines',
  ListPools: 'Pools with what they hold',
  ExportWorkspaceConfig: 'What a client needs to talk to this installation',
};

/** Whether the operation is one of pods and sandboxes: their routes answer that they are not available yet. */
export const isToCome = (operation: string): boolean => /^(CreatePod$|Sandbox)/.test(operation);

export const summaryOf = (operation: string): string => SUMMARIES[operation] ?? (isToCome(operation) ? NOT_YET : '');
